package lint

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// deciding are the packages that must depend on their inputs alone, as go list patterns.
var deciding = []string{"./broker/...", "./storage/...", "./sim/...", "./experiments/history/..."}

// live are the files in them that touch the machine, and why they may. A pattern
// is a file, or a directory with a slash at its end.
var live = []struct{ pattern, why string }{
	{"broker/server/", "the live shell: goroutines and sockets"},
	{"broker/env/real/", "the live Env: the machine's clock and a pool for syncs"},
	{"broker/coord/zkserver/", "the live shell around the tree: goroutines and sockets"},
	{"storage/vfs/real.go", "the real file system"},
}

func isLive(file string) bool {
	for _, l := range live {
		if file == l.pattern || strings.HasSuffix(l.pattern, "/") && strings.HasPrefix(file, l.pattern) {
			return true
		}
	}
	return false
}

func TestCodeThatDecidesDependsOnItsInputsAlone(t *testing.T) {
	found, err := Determinism("../..", isLive, deciding...)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range found {
		t.Error(v)
	}
}

// planted holds each kind of violation, named by a comment on its line, and
// beside each what is allowed.
const planted = `package planted

import (
	"context"      // want import of context
	"maps"
	"math/rand/v2"
	_ "net/absent"  // want import of net/absent
	"net/netip"
	"os"           // want import of os
	"slices"
	"sync"
	"time"
)

var (
	_ context.Context
	_ netip.Addr
	_ os.FileMode
	_ = time.Second
)

func threads(c chan int, m *sync.Map, wg *sync.WaitGroup, mu *sync.Mutex) {
	mu.Lock()
	go threads(c, m, wg, mu) // want go statement
	select {}                // want select
	c <- 1                   // want channel send
	<-c                      // want channel receive
	for range c {            // want channel receive
	}
	wg.Go(func() {})                                // want Go of sync.WaitGroup
	m.Range(func(k, v any) bool { return true })    // want Range of sync.Map
	m.Store(1, 2)
}

func clocks() {
	_ = time.Now()        // want time.Now
	f := time.Since       // want time.Since
	time.AfterFunc(0, nil) // want time.AfterFunc
	_ = f(time.UnixMilli(5).Add(time.Second))
}

func chance() {
	rng := rand.New(rand.NewPCG(1, 2))
	_ = rng.IntN(3)
	_ = rand.IntN(3)   // want math/rand/v2.IntN
	_ = rand.N(3)      // want math/rand/v2.N
}

type set map[string]bool

func order(m set, s []string) {
	for range s {
	}
	for range m {             // want range over a map
	}
	for range maps.Keys(m) {  // want maps.Keys outside
	}
	for range slices.Sorted(maps.Keys(m)) {
	}
	for range slices.SortedFunc(maps.Keys(m), nil) {
	}
	_ = slices.Collect(maps.Keys(m)) // want maps.Keys outside
	_ = maps.Clone(m)
}
`

func TestEachPlantedViolationIsFoundAndNothingElse(t *testing.T) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "planted.go", planted, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: importer.ForCompiler(fset, "source", nil), Error: func(err error) {
		if !strings.Contains(err.Error(), "net/absent") {
			t.Error(err)
		}
	}}
	_, _ = conf.Check("planted", fset, []*ast.File{f}, info) // errors went to conf.Error
	c := checker{fset: fset, info: info, file: "planted.go"}
	c.check(f)

	want := map[int]string{}
	wanted := regexp.MustCompile(`// want (.*)$`)
	for i, line := range strings.Split(planted, "\n") {
		if m := wanted.FindStringSubmatch(line); m != nil {
			want[i+1] = m[1]
		}
	}
	for _, v := range c.found {
		if w, ok := want[v.Line]; !ok || !strings.HasPrefix(v.What, w) {
			t.Errorf("found %v, want %q", v, w)
		}
		delete(want, v.Line)
	}
	for line, w := range want {
		t.Errorf("line %d: %s was not found", line, w)
	}
}

func TestEveryLiveFileIsThere(t *testing.T) {
	for _, l := range live {
		if matches, err := filepath.Glob(filepath.Join("../..", l.pattern)); err != nil || len(matches) == 0 {
			t.Errorf("%s is listed as live and does not exist (%v)", l.pattern, err)
		}
	}
}
