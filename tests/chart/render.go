// Renders the Helm chart as Helm does: Go's templates with the functions of Sprig, and Helm's own. There is no package of Helm
// in Debian or PyPI. `lookup` finds nothing, as with `helm template`. NOTES.txt goes to standard error.
//
//	render CHART RELEASE NAMESPACE [VALUES.yaml ...]
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"text/template"

	"github.com/Masterminds/sprig"
	"sigs.k8s.io/yaml"
)

func read(path string) map[string]interface{} {
	text, err := os.ReadFile(path)
	exitOn(err)
	values := map[string]interface{}{}
	exitOn(yaml.Unmarshal(text, &values))
	return values
}

// merge puts the values of `over` over those of `base`, tables by their entries.
func merge(base, over map[string]interface{}) {
	for name, value := range over {
		below, isTable := value.(map[string]interface{})
		if table, ok := base[name].(map[string]interface{}); ok && isTable {
			merge(table, below)
		} else if value == nil {
			delete(base, name)
		} else {
			base[name] = value
		}
	}
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func functions(templates *template.Template) template.FuncMap {
	all := sprig.TxtFuncMap()
	delete(all, "env")
	delete(all, "expandenv")
	all["toYaml"] = func(value interface{}) (string, error) {
		text, err := yaml.Marshal(value)
		return strings.TrimSuffix(string(text), "\n"), err
	}
	all["toJson"] = func(value interface{}) (string, error) {
		text, err := json.Marshal(value)
		return string(text), err
	}
	all["include"] = func(name string, data interface{}) (string, error) {
		var text strings.Builder
		err := templates.ExecuteTemplate(&text, name, data)
		return text.String(), err
	}
	all["required"] = func(message string, value interface{}) (interface{}, error) {
		if value == nil || value == "" {
			return nil, errors.New(message)
		}
		return value, nil
	}
	all["fail"] = func(message string) (string, error) { return "", errors.New(message) }
	all["lookup"] = func(string, string, string, string) map[string]interface{} {
		return map[string]interface{}{}
	}
	return all
}

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "usage: render CHART RELEASE NAMESPACE [VALUES.yaml ...]")
		os.Exit(64)
	}
	chart := os.Args[1]
	described := read(filepath.Join(chart, "Chart.yaml"))
	values := read(filepath.Join(chart, "values.yaml"))
	for _, path := range os.Args[4:] {
		merge(values, read(path))
	}
	data := map[string]interface{}{
		"Values": values,
		"Chart": map[string]interface{}{
			"Name": described["name"], "Version": described["version"], "AppVersion": described["appVersion"],
		},
		"Release": map[string]interface{}{
			"Name": os.Args[2], "Namespace": os.Args[3], "Service": "Helm", "IsInstall": true, "IsUpgrade": false, "Revision": 1,
		},
		"Capabilities": map[string]interface{}{"KubeVersion": map[string]interface{}{"Version": "v1.34.0"}},
	}
	templates := template.New("chart").Option("missingkey=zero")
	templates.Funcs(functions(templates))
	paths, err := filepath.Glob(filepath.Join(chart, "templates", "*"))
	exitOn(err)
	sort.Strings(paths)
	for _, path := range paths {
		text, err := os.ReadFile(path)
		exitOn(err)
		_, err = templates.New(filepath.Base(path)).Parse(string(text))
		exitOn(err)
	}
	for _, path := range paths {
		name := filepath.Base(path)
		if strings.HasPrefix(name, "_") {
			continue
		}
		var text strings.Builder
		exitOn(templates.ExecuteTemplate(&text, name, data))
		if name == "NOTES.txt" {
			fmt.Fprint(os.Stderr, text.String())
		} else if strings.TrimSpace(text.String()) != "" {
			fmt.Printf("---\n# Source: tollgate/templates/%s\n%s\n", name, strings.Trim(strings.ReplaceAll(text.String(), "<no value>", ""), "\n"))
		}
	}
}
