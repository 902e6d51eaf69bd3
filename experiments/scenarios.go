package experiments

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

//go:embed scenarios/*.toml
var scenarios embed.FS

// ScenarioNames lists the embedded scenarios, ascending.
func ScenarioNames() []string {
	files, err := fs.Glob(scenarios, "scenarios/*.toml")
	if err != nil {
		panic("BUG: experiments: " + err.Error())
	}
	var names []string
	for _, f := range files {
		names = append(names, strings.TrimSuffix(path.Base(f), ".toml"))
	}
	slices.Sort(names)
	return names
}

// LoadScenario reads an embedded scenario by its name.
func LoadScenario(name string) (*Scenario, error) {
	text, err := scenarios.ReadFile("scenarios/" + name + ".toml")
	if err != nil {
		return nil, fmt.Errorf("no scenario %q: there are %s", name, strings.Join(ScenarioNames(), ", "))
	}
	return ParseScenario(name, text)
}
