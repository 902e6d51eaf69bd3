package coord

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestTree runs the conversations of testdata: one command a line of input,
// then what it answered and whose watches fired. A line that begins with "multi" takes the
// following indented lines as its operations.
func TestTree(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		c := conversation{tree: NewTree()}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd != "do" {
				d.Fatalf(t, "unknown command %s", d.Cmd)
			}
			c.out.Reset()
			lines := strings.Split(d.Input, "\n")
			for i := 0; i < len(lines); i++ {
				var ops []string
				for i+1 < len(lines) && strings.HasPrefix(lines[i+1], "  ") {
					i++
					ops = append(ops, strings.TrimSpace(lines[i]))
				}
				c.line(t, lines[i-len(ops)], ops)
			}
			return c.out.String()
		})
	})
}

type conversation struct {
	tree *Tree
	out  strings.Builder
	now  int64 // ms; each line takes one
}

// args are the words of a line: key=value, or bare words.
type args struct {
	words []string
	named map[string]string
}

func split(line string) (cmd string, a args) {
	a.named = map[string]string{}
	for i, w := range strings.Fields(line) {
		if k, v, ok := strings.Cut(w, "="); ok {
			a.named[k] = v
		} else if i > 0 {
			a.words = append(a.words, w)
		} else {
			cmd = w
		}
	}
	return cmd, a
}

func (a args) path() string {
	if len(a.words) == 0 {
		return ""
	}
	return a.words[0]
}

func (a args) session() SessionID { return SessionID(a.int("s", 0)) }

func (a args) int(name string, absent int64) int64 {
	v, ok := a.named[name]
	if !ok {
		return absent
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func (a args) op(t *testing.T, cmd string) Op {
	v := int32(a.int("v", -1))
	data := []byte(a.named["data"])
	if n := a.int("size", -1); n >= 0 {
		data = make([]byte, n)
	}
	switch cmd {
	case "create":
		var mode CreateMode
		if slices.Contains(a.words, "ephemeral") {
			mode |= Ephemeral
		}
		if slices.Contains(a.words, "sequential") {
			mode |= Sequential
		}
		return CreateOp(a.path(), data, mode)
	case "set":
		return SetOp(a.path(), data, v)
	case "delete":
		return DeleteOp(a.path(), v)
	case "check":
		return CheckOp(a.path(), v)
	}
	t.Fatalf("unknown operation %q", cmd)
	return Op{}
}

func (c *conversation) printf(format string, v ...any) { fmt.Fprintf(&c.out, format+"\n", v...) }

func (c *conversation) line(t *testing.T, line string, lines []string) {
	c.now++
	cmd, a := split(line)
	switch cmd {
	case "create", "set", "delete", "check":
		c.apply(Txn{Kind: TxnOps, Session: a.session(), Time: c.now, Ops: []Op{a.op(t, cmd)}})
	case "multi":
		txn := Txn{Kind: TxnOps, Session: a.session(), Time: c.now}
		for _, l := range lines {
			cmd, oa := split(l)
			txn.Ops = append(txn.Ops, oa.op(t, cmd))
		}
		c.apply(txn)
	case "open":
		c.apply(Txn{Kind: TxnOpenSession, Session: a.session(), Time: c.now, Timeout: a.int("timeout", 0)})
	case "close":
		c.apply(Txn{Kind: TxnCloseSession, Session: a.session(), Time: c.now})
	case "touch":
		c.err(c.tree.Touch(a.session(), a.int("now", 0)))
	case "expired":
		c.printf("expired %v", c.tree.Expired(a.int("now", 0)))
	case "watch-data":
		c.tree.Watch(WatchData, a.path(), a.session())
	case "watch-children":
		c.tree.Watch(WatchChildren, a.path(), a.session())
	case "get":
		data, s, err := c.tree.Get(a.path())
		if err != nil {
			c.err(err)
			return
		}
		c.printf("%.40q %s", data[:min(len(data), 10)], statLine(s))
	case "children":
		names, _, err := c.tree.Children(a.path())
		if err != nil {
			c.err(err)
			return
		}
		c.printf("%v", names)
	case "zxid":
		c.printf("zxid %d", c.tree.Zxid())
	default:
		t.Fatalf("unknown command %q", cmd)
	}
}

func (c *conversation) err(err error) {
	if err == nil {
		c.printf("ok")
		return
	}
	c.printf("%v", err)
}

func statLine(s Stat) string {
	line := fmt.Sprintf("czxid=%d mzxid=%d pzxid=%d version=%d cversion=%d children=%d bytes=%d", s.Czxid, s.Mzxid, s.Pzxid, s.Version, s.Cversion, s.NumChildren, s.DataLength)
	if s.EphemeralOwner != 0 {
		line += fmt.Sprintf(" owner=%d", s.EphemeralOwner)
	}
	return line
}

func (c *conversation) apply(txn Txn) {
	results, fired, err := c.tree.Apply(txn)
	if err != nil && len(results) <= 1 {
		c.err(err)
	} else if txn.Kind == TxnOpenSession {
		c.printf("ok")
	} else {
		for _, r := range results {
			if r.Err != nil {
				c.printf("%v", r.Err)
			} else {
				c.printf("ok %s", r.Path)
			}
		}
	}
	for _, f := range fired {
		c.printf("  session %d: %s %s", f.Session, f.Event.Type, f.Event.Path)
	}
}
