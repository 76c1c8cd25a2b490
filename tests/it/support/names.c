/* Looks up names that end in `.test` in a folder: the file of a name has its address. Without a file, the name does not
 * exist; with an empty one, there is no answer for 20 s. Loaded before the C library, which looks up other names. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int look_up(const char *, const char *, const struct addrinfo *, struct addrinfo **);

int getaddrinfo(const char *restrict name, const char *restrict service,
                const struct addrinfo *restrict hints, struct addrinfo **restrict found) {
    look_up *real = (look_up *)dlsym(RTLD_NEXT, "getaddrinfo");
    size_t length = name ? strlen(name) : 0;
    if (length < 5 || strcmp(name + length - 5, ".test") != 0) {
        return real(name, service, hints, found);
    }
    char path[4096], address[64];
    const char *folder = getenv("TEST_NAMES");
    if (!folder) abort();
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    if (!file) return EAI_NONAME;
    char *line = fgets(address, sizeof address, file);
    fclose(file);
    if (line) return real(address, service, hints, found);
    sleep(20);
    return EAI_AGAIN;
}
