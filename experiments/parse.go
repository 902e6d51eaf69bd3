package experiments

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"
)

// specBytesMax bounds a file: a spec is a page of text.
const specBytesMax = 1 << 20

//go:embed *.toml
var embedded embed.FS

// Names lists the embedded experiments, in the order in which reproduce runs them.
func Names() []string {
	files, err := fs.Glob(embedded, "*.toml")
	if err != nil {
		panic("BUG: experiments: " + err.Error())
	}
	var names []string
	for _, f := range files {
		names = append(names, strings.TrimSuffix(f, ".toml"))
	}
	slices.SortStableFunc(names, func(a, b string) int { return rank(a) - rank(b) })
	return names
}

// rank orders the embedded experiments: the disk first, then what stands on it.
func rank(name string) int {
	order := []string{"sequential-vs-random", "log-vs-btree", "page-cache", "batch-size", "sendfile", "compression", "acks-0-1", "flush", "offset-addressing",
		"acks-replication", "leader-kill", "failover-partitions", "follower-reads"}
	if i := slices.Index(order, name); i >= 0 {
		return i
	}
	return len(order)
}

// Load reads an experiment: an embedded one by its name, or a file.
func Load(nameOrFile string) (*Spec, error) {
	if slices.Contains(Names(), nameOrFile) {
		text, err := embedded.ReadFile(nameOrFile + ".toml")
		if err != nil {
			return nil, err
		}
		return Parse(nameOrFile, text)
	}
	info, err := os.Stat(nameOrFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("no experiment %q: neither a file nor one of %s", nameOrFile, strings.Join(Names(), ", "))
	case err != nil:
		return nil, err
	case info.IsDir() || info.Size() > specBytesMax:
		return nil, fmt.Errorf("%s is no experiment file", nameOrFile)
	}
	text, err := os.ReadFile(nameOrFile)
	if err != nil {
		return nil, err
	}
	return Parse(strings.TrimSuffix(filepath.Base(nameOrFile), ".toml"), text)
}

// Parse reads an experiment. An unknown key, a wrong type or a contradiction is
// an error that names the line.
func Parse(name string, text []byte) (*Spec, error) {
	s := &Spec{Name: name, Text: string(text), Run: Run{Seed: 1, Repeats: 8, Order: "interleaved"}, Cluster: Cluster{Brokers: 1, ReplicationFactor: 1, MinInsyncReplicas: 1}}
	decoder := toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields()
	if err := decoder.Decode(s); err != nil {
		return nil, located(name, text, err)
	}
	s.positions = findPositions(text)
	s.factors = s.positions.children("vary")
	if err := s.check(); err != nil {
		return nil, err
	}
	return s, nil
}

// located gives the decoder's complaint the form file:line: what.
func located(name string, text []byte, err error) error {
	var unknown *toml.StrictMissingError
	if errors.As(err, &unknown) {
		var all []error
		for i := range unknown.Errors {
			e := &unknown.Errors[i]
			line, _ := e.Position()
			key := findPositions(text).whole(line, e.Key())
			all = append(all, fmt.Errorf("%s.toml:%d: unknown key %s", name, line, strings.Join(key, ".")))
		}
		return errors.Join(all...)
	}
	var wrong *toml.DecodeError
	if errors.As(err, &wrong) {
		line, _ := wrong.Position()
		return fmt.Errorf("%s.toml:%d: %s", name, line, strings.TrimPrefix(wrong.Error(), "toml: "))
	}
	return fmt.Errorf("%s.toml: %w", name, err)
}

// positions holds every key of a document with its line, in order. Elements of
// arrays of tables have their index as a key.
type positions []position

type position struct {
	path []string
	line int
}

func (p positions) line(path []string) (int, bool) {
	for _, at := range p {
		if slices.Equal(at.path, path) {
			return at.line, true
		}
	}
	return 0, false
}

// whole gives the full path of a key of which the decoder names the end only,
// as it does inside inline tables.
func (p positions) whole(line int, end []string) []string {
	for _, at := range p {
		if at.line == line && len(at.path) >= len(end) && slices.Equal(at.path[len(at.path)-len(end):], end) {
			return at.path
		}
	}
	return end
}

// children lists the keys directly under a table, in the file's order.
func (p positions) children(table string) []string {
	var keys []string
	for _, at := range p {
		if len(at.path) >= 2 && at.path[0] == table && !slices.Contains(keys, at.path[1]) {
			keys = append(keys, at.path[1])
		}
	}
	return keys
}

// findPositions walks a document that has been decoded without error.
func findPositions(text []byte) positions {
	var found positions
	arrays := map[string]int{} // elements seen of each array of tables
	var prefix []string
	p := unstable.Parser{}
	p.Reset(text)
	for p.NextExpression() {
		e := p.Expression()
		switch e.Kind {
		case unstable.Table, unstable.ArrayTable:
			path, line := keyOf(&p, e)
			if e.Kind == unstable.ArrayTable {
				name := strings.Join(path, ".")
				path = append(path, fmt.Sprint(arrays[name]))
				arrays[name]++
			}
			prefix = path
			found = append(found, position{path, line})
		case unstable.KeyValue:
			found = walkKeyValue(&p, e, prefix, found)
		}
	}
	return found
}

func walkKeyValue(p *unstable.Parser, e *unstable.Node, prefix []string, found positions) positions {
	key, line := keyOf(p, e)
	path := slices.Concat(prefix, key)
	found = append(found, position{path, line})
	switch v := e.Value(); v.Kind {
	case unstable.InlineTable:
		found = walkInline(p, v, path, found)
	case unstable.Array:
		it := v.Children()
		for i := 0; it.Next(); i++ {
			if element := it.Node(); element.Kind == unstable.InlineTable {
				found = walkInline(p, element, slices.Concat(path, []string{fmt.Sprint(i)}), found)
			}
		}
	}
	return found
}

func walkInline(p *unstable.Parser, table *unstable.Node, path []string, found positions) positions {
	it := table.Children()
	for it.Next() {
		found = walkKeyValue(p, it.Node(), path, found)
	}
	return found
}

func keyOf(p *unstable.Parser, e *unstable.Node) (path []string, line int) {
	it := e.Key()
	for it.Next() {
		n := it.Node()
		path = append(path, string(n.Data))
		if line == 0 {
			line = p.Shape(n.Raw).Start.Line
		}
	}
	return path, line
}
