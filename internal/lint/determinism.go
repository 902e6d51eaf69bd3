// Package lint checks what the compiler cannot: that the code which decides
// depends on its inputs alone, so that one seed always gives one history.
package lint

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/tools/go/packages"
)

// Violation is a construct that lets the machine decide.
type Violation struct {
	File string // relative to the module
	Line int
	What string
}

func (v Violation) String() string { return fmt.Sprintf("%s:%d: %s", v.File, v.Line, v.What) }

// forbiddenImports reach the machine. A pattern ending in / means the package and all below it.
var forbiddenImports = []struct{ pattern, why string }{
	{"os/", "files come from env.Disk, signals from the shell"},
	{"net/", "messages come through Handle and leave through replies"},
	{"syscall/", "the machine is the Env's"},
	{"golang.org/x/sys/", "the machine is the Env's"},
	{"crypto/rand", "random numbers come from env.Rand"},
	{"context", "its deadlines read the machine's clock; timers come from env.After"},
}

// pureImports lie below a forbidden one and are functions of their inputs.
var pureImports = []string{"net/netip", "net/url"}

// forbiddenFuncs of a package, by path; nil forbids all package-level functions but those in allowedFuncs.
var forbiddenFuncs = map[string][]string{
	"time":         {"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"},
	"math/rand":    nil,
	"math/rand/v2": nil,
	"runtime":      {"Gosched", "NumGoroutine", "Goexit"},
}

var allowedFuncs = map[string][]string{ // constructors of seeded sources
	"math/rand":    {"New", "NewSource", "NewZipf"},
	"math/rand/v2": {"New", "NewPCG", "NewChaCha8", "NewZipf"},
}

// Determinism loads the packages that match patterns, seen from dir, and reports
// what in them is not a function of their inputs: goroutines, select, channels,
// clocks, random numbers, the operating system, and map order. Maps are walked in
// order with slices.Sorted(maps.Keys(m)). Files that skip approves (by path
// relative to dir) and tests are left out.
func Determinism(dir string, skip func(file string) bool, patterns ...string) ([]Violation, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	pkgs, err := packages.Load(&packages.Config{
		Dir:  dir,
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedImports | packages.NeedExportFile,
	}, patterns...)
	if err != nil {
		return nil, err
	}
	var found []Violation
	for _, p := range pkgs {
		for _, e := range p.Errors {
			return nil, fmt.Errorf("%s: %w", p.PkgPath, e)
		}
		for i, f := range p.Syntax {
			name, err := filepath.Rel(dir, p.CompiledGoFiles[i])
			if err != nil {
				return nil, err
			}
			if skip(filepath.ToSlash(name)) {
				continue
			}
			c := checker{fset: p.Fset, info: p.TypesInfo, file: filepath.ToSlash(name)}
			c.check(f)
			found = append(found, c.found...)
		}
	}
	return found, nil
}

type checker struct {
	fset  *token.FileSet
	info  *types.Info
	file  string
	found []Violation
	// sorted are the calls of maps.Keys, Values and All whose order a sort removes at once.
	sorted []*ast.CallExpr
}

func (c *checker) add(n ast.Node, format string, args ...any) {
	c.found = append(c.found, Violation{c.file, c.fset.Position(n.Pos()).Line, fmt.Sprintf(format, args...)})
}

func (c *checker) check(f *ast.File) {
	for _, imp := range f.Imports {
		path, _ := strconv.Unquote(imp.Path.Value)
		if slices.Contains(pureImports, path) {
			continue
		}
		for _, forbidden := range forbiddenImports {
			if under, tree := strings.CutSuffix(forbidden.pattern, "/"); path == under || tree && strings.HasPrefix(path, forbidden.pattern) {
				c.add(imp, "import of %s: %s", path, forbidden.why)
			}
		}
	}
	ast.Inspect(f, c.visit)
}

func (c *checker) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GoStmt:
		c.add(n, "go statement: the Env decides what runs when")
	case *ast.SelectStmt:
		c.add(n, "select: the runtime picks a ready case at random")
	case *ast.SendStmt:
		c.add(n, "channel send")
	case *ast.UnaryExpr:
		if n.Op == token.ARROW {
			c.add(n, "channel receive")
		}
	case *ast.RangeStmt:
		switch c.info.TypeOf(n.X).Underlying().(type) {
		case *types.Map:
			c.add(n, "range over a map: its order is random; range over slices.Sorted(maps.Keys(m))")
		case *types.Chan:
			c.add(n, "channel receive")
		}
	case *ast.CallExpr:
		c.call(n)
	case *ast.SelectorExpr:
		c.use(n)
	}
	return true
}

// call notes the map iterators that are sorted where they are made, and finds the others.
func (c *checker) call(n *ast.CallExpr) {
	pkg, name := c.callee(n)
	if pkg == "slices" && strings.HasPrefix(name, "Sorted") && len(n.Args) > 0 {
		if arg, ok := n.Args[0].(*ast.CallExpr); ok {
			c.sorted = append(c.sorted, arg)
		}
	}
	if pkg == "maps" && (name == "Keys" || name == "Values" || name == "All") && !slices.Contains(c.sorted, n) {
		c.add(n, "maps.%s outside slices.Sorted: its order is random", name)
	}
}

// callee names the package-level function that a call is of.
func (c *checker) callee(n *ast.CallExpr) (pkg, name string) {
	fun := ast.Unparen(n.Fun)
	if ix, ok := fun.(*ast.IndexExpr); ok {
		fun = ix.X
	}
	sel, ok := fun.(*ast.SelectorExpr)
	if !ok {
		return "", ""
	}
	f, ok := c.info.Uses[sel.Sel].(*types.Func)
	if !ok || f.Pkg() == nil || f.Signature().Recv() != nil {
		return "", ""
	}
	return f.Pkg().Path(), f.Name()
}

// use finds forbidden functions, called or passed on.
func (c *checker) use(n *ast.SelectorExpr) {
	f, ok := c.info.Uses[n.Sel].(*types.Func)
	if !ok || f.Pkg() == nil {
		return
	}
	path, name := f.Pkg().Path(), f.Name()
	if recv := f.Signature().Recv(); recv != nil {
		if path == "sync" && (name == "Go" || name == "Range") {
			c.add(n, "%s of sync.%s", name, strings.TrimPrefix(recv.Type().String(), "*sync."))
		}
		return
	}
	if names, listed := forbiddenFuncs[path]; listed && (slices.Contains(names, name) || names == nil && !slices.Contains(allowedFuncs[path], name)) {
		c.add(n, "%s.%s: the machine decides; ask the Env", path, name)
	}
}
