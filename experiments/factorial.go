package experiments

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tidemark-log/tidemark/storage"
)

// Cell is one combination of the factors' levels.
type Cell struct {
	Levels   []Setting         // one per factor, in the file's order
	Workload map[string]string // every workload key that the spec sets, for this cell
	Settings map[string]string // every broker setting that the spec sets, for this cell
}

// Name tells cells of one experiment apart: "acks=all/linger_ms=5", as benchmarks write it.
func (c Cell) Name() string {
	if len(c.Levels) == 0 {
		return "only"
	}
	return JoinSettings(c.Levels, "/")
}

// Level gives the cell's level of a factor.
func (c Cell) Level(factor string) string {
	for _, l := range c.Levels {
		if l.Key == factor {
			return l.Value
		}
	}
	return ""
}

// Has reports whether the cell has all of these levels.
func (c Cell) Has(levels []Setting) bool {
	for _, l := range levels {
		if c.Level(l.Key) != l.Value {
			return false
		}
	}
	return true
}

// Pruned is a combination that is not run, and why.
type Pruned struct {
	Name string
	Why  string
}

// cellsMax bounds a factorial: more would not end in a day.
const cellsMax = 10_000

// Cells gives the full factorial without the combinations that are not valid.
func (s *Spec) Cells() ([]Cell, []Pruned, error) {
	total := 1
	for _, factor := range s.factors {
		if total *= len(s.Vary[factor]); total > cellsMax {
			return nil, nil, fmt.Errorf("%s: more than %d combinations", s.At("vary"), cellsMax)
		}
	}
	var cells []Cell
	var pruned []Pruned
	for i := range total {
		c := s.cell(i)
		if why := s.whyNot(c); why != "" {
			pruned = append(pruned, Pruned{c.Name(), why})
			continue
		}
		cells = append(cells, c)
	}
	if len(cells) == 0 {
		return nil, nil, fmt.Errorf("%s: no valid combination is left: %s", s.At("vary"), pruned[0].Why)
	}
	return cells, pruned, nil
}

// cell builds the i-th combination; the last factor changes fastest.
func (s *Spec) cell(i int) Cell {
	c := Cell{Levels: make([]Setting, len(s.factors)), Workload: map[string]string{}, Settings: map[string]string{}}
	for k := len(s.factors) - 1; k >= 0; k-- {
		levels := s.Vary[s.factors[k]]
		c.Levels[k] = Setting{s.factors[k], Text(levels[i%len(levels)])}
		i /= len(levels)
	}
	c.set(settings(s.Workload))
	if s.Cluster.MinInsyncReplicas > 1 {
		c.set([]Setting{{"min.insync.replicas", fmt.Sprint(s.Cluster.MinInsyncReplicas)}})
	}
	c.set(settings(s.Cluster.Settings))
	for _, l := range c.Levels {
		if defined := s.Levels[l.Key]; defined != nil {
			c.set(settings(defined[l.Value]))
			continue
		}
		c.set([]Setting{l})
	}
	return c
}

func (c *Cell) set(all []Setting) {
	for _, s := range all {
		if strings.Contains(s.Key, ".") {
			c.Settings[s.Key] = s.Value
		} else {
			c.Workload[s.Key] = s.Value
		}
	}
}

func (s *Spec) whyNot(c Cell) string {
	for _, e := range s.Except {
		if c.Has(settings(e)) {
			return "excepted by the experiment"
		}
	}
	if err := c.Combination().Check(); err != nil {
		return err.Error()
	}
	return ""
}

// Combination is the cell's choice of the switches that exclude each other.
func (c Cell) Combination() storage.Combination {
	d := storage.DefaultLogConfig()
	pick := func(key, otherwise string) string {
		if v, ok := c.Settings[key]; ok {
			return v
		}
		return otherwise
	}
	return storage.Combination{
		Engine:   storage.Engine(pick("lab.storage.engine", string(d.Engine))),
		Key:      storage.BTreeKey(pick("lab.btree.key", string(d.BTreeKey))),
		Cache:    storage.Cache(pick("lab.cache", string(d.Cache))),
		Offsets:  storage.OffsetScheme(pick("lab.offsets", string(d.Offsets))),
		Transfer: storage.Transfer(pick("lab.fetch.transfer", string(storage.TransferSendfile))),
	}
}

// settings gives a table's entries by ascending key.
func settings(table map[string]any) []Setting {
	var all []Setting
	for _, k := range slices.Sorted(maps.Keys(table)) {
		all = append(all, Setting{k, Text(table[k])})
	}
	return all
}
