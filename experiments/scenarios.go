package experiments

import (
	"cmp"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Scenarios of the failure catalogue, and beside them those of general chaos: they have no
// vector, and are played in the simulator and on live processes.
//
//go:embed scenarios/*.toml scenarios/chaos/*.toml
var scenarios embed.FS

// ScenarioNames lists the embedded scenarios of the failure catalogue, ascending.
func ScenarioNames() []string { return namesIn("scenarios") }

// ChaosNames lists the embedded scenarios of general chaos, ascending.
func ChaosNames() []string { return namesIn("scenarios/chaos") }

func namesIn(dir string) []string {
	files, err := fs.Glob(scenarios, dir+"/*.toml")
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
	for _, dir := range []string{"scenarios/", "scenarios/chaos/"} {
		if text, err := scenarios.ReadFile(dir + name + ".toml"); err == nil {
			return ParseScenario(name, text)
		}
	}
	return nil, fmt.Errorf("no scenario %q: there are %s", name, strings.Join(append(ScenarioNames(), ChaosNames()...), ", "))
}

// FindScenarios reads a scenario by its embedded name or the path of its file, or those of an entry
// of the failure catalogue (B1), which may be more than one.
func FindScenarios(what string) ([]*Scenario, error) {
	if strings.HasSuffix(what, ".toml") || strings.ContainsRune(what, filepath.Separator) {
		text, err := os.ReadFile(what)
		if err != nil {
			return nil, scenarioFileError(what, err)
		}
		s, err := ParseScenario(strings.TrimSuffix(what, ".toml"), text)
		return []*Scenario{s}, err
	}
	if name := strings.ToLower(what); slices.Contains(ChaosNames(), name) {
		s, err := LoadScenario(name)
		return []*Scenario{s}, err
	}
	found, err := FindEntry(what)
	if err != nil {
		return nil, fmt.Errorf("no scenario %q: want an entry such as B1, a name such as b1-truncate-to-high-watermark or chaos-kills, or a file; tidemark sim catalogue lists them", what)
	}
	var all []*Scenario
	for _, e := range found {
		if e.Scenario == nil {
			return nil, fmt.Errorf("%s, %s, has no scenario: %s", e.ID, e.Title, e.Absent)
		}
		all = append(all, e.Scenario)
	}
	return all, nil
}

func scenarioFileError(what string, err error) error {
	if pathErr := (*fs.PathError)(nil); errors.As(err, &pathErr) {
		err = pathErr.Err
	}
	return fmt.Errorf("scenario %s: %w", what, err)
}

// SearchSeeds are the seeds of which one must break, both ends included.
func (s *Scenario) SearchSeeds() (from, to uint64, err error) {
	low, high, _ := strings.Cut(cmp.Or(s.Search, "1-1"), "-")
	from, err1 := strconv.ParseUint(low, 10, 63)
	to, err2 := strconv.ParseUint(high, 10, 63)
	if err1 != nil || err2 != nil || from > to {
		return 0, 0, fmt.Errorf("%s.toml: search = %q: want seeds, as 1-200", s.Name, s.Search)
	}
	return from, to, nil
}
