package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Every field has a name in the list, at its place, and a comment that says what it
// prevents, with its catalogue entry and a KIP or Kafka issue.
func TestEveryRuleIsNamedAndDocumented(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "rules.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var fields []*ast.Field
	ast.Inspect(f, func(n ast.Node) bool {
		if ts, ok := n.(*ast.TypeSpec); ok && ts.Name.Name == "Rules" {
			fields = ts.Type.(*ast.StructType).Fields.List
		}
		return true
	})
	if n := reflect.TypeFor[Rules]().NumField(); len(fields) != n || len(list) != n {
		t.Fatalf("%d fields in the type, %d in its text, %d rules in the list", n, len(fields), len(list))
	}
	source := regexp.MustCompile(`(KIP|KAFKA)-\d+`)
	for i, field := range fields {
		name, doc := field.Names[0].Name, strings.Join(strings.Fields(field.Doc.Text()), " ")
		if got := strings.ReplaceAll(list[i].name, "-", ""); got != strings.ToLower(name) {
			t.Errorf("field %s is rule %q", name, list[i].name)
		}
		if !strings.HasPrefix(doc, name+":") || !strings.Contains(doc, "Without it") || !source.MatchString(doc) {
			t.Errorf("%s: the comment does not say what happens without it, and where that was reported: %q", name, doc)
		}
		if !regexp.MustCompile(`\(.*\b` + list[i].entry + `\b.*\)`).MatchString(doc) {
			t.Errorf("%s: the comment does not name catalogue entry %s", name, list[i].entry)
		}
	}
}

// A name switches off its field and no other.
func TestNamesSwitchTheirOwnField(t *testing.T) {
	if off := All().Off(); off != nil {
		t.Errorf("of all rules, off: %v", off)
	}
	for i, name := range Names() {
		r, err := Parse([]string{name})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(r.Off(), []string{name}) {
			t.Errorf("%s switches off %v", name, r.Off())
		}
		for j := range reflect.TypeFor[Rules]().NumField() {
			if on := reflect.ValueOf(r).Field(j).Bool(); on != (j != i) {
				t.Errorf("%s: field %d is %v", name, j, on)
			}
		}
	}
}

func TestParse(t *testing.T) {
	r, err := Parse([]string{"elr", "truncate-by-epoch", "elr"})
	if err != nil || r.ELR || r.TruncateByEpoch || !r.MaximalISR {
		t.Errorf("got %v %v", r, err)
	}
	if _, err := Parse([]string{"elr", "fsync"}); err == nil || !strings.Contains(err.Error(), `"fsync"`) {
		t.Errorf("an unknown rule: %v", err)
	} else {
		for _, name := range Names() {
			if !strings.Contains(err.Error(), name) {
				t.Errorf("the error does not list %s", name)
			}
		}
	}
	if Entry("elr") != "A6" || Entry("fsync") != "" {
		t.Error("Entry")
	}
}
