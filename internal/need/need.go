// Package need says in one way what a test needs that a machine may lack, so
// that a skipped part is never silent.
//
// Where something is missing the test is skipped with the line
// "SKIPPED(name): reason", which scripts/test collects. With
// TIDEMARK_REQUIRE_ALL=1 (CI) it fails instead, unless TIDEMARK_ALLOW_SKIP, a
// comma-separated list, names it.
package need

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Tool skips t unless the command is on PATH. It returns the command's path.
func Tool(t testing.TB, command string) string {
	t.Helper()
	path, err := exec.LookPath(command)
	if err != nil {
		Skip(t, command, "the command is not installed (scripts/test installs it with apt where it is root on Debian)")
	}
	return path
}

// Root skips t unless it runs as root.
func Root(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		Skip(t, "root", "needs root")
	}
}

// Skip skips t because name is missing, for the reason given.
func Skip(t testing.TB, name, reason string) {
	t.Helper()
	if Required(name, os.Getenv("TIDEMARK_REQUIRE_ALL"), os.Getenv("TIDEMARK_ALLOW_SKIP")) {
		t.Fatalf("MISSING(%s): %s; name it in TIDEMARK_ALLOW_SKIP to go without", name, reason)
	}
	t.Skipf("SKIPPED(%s): %s", name, reason)
}

// Required reports whether lacking name is a failure: requireAll is set and allow does not list it.
func Required(name, requireAll, allow string) bool {
	if requireAll == "" || requireAll == "0" {
		return false
	}
	return !slices.Contains(strings.FieldsFunc(allow, func(r rune) bool { return r == ',' || r == ' ' }), name)
}
