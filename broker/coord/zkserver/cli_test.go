package zkserver

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/tidemark-log/tidemark/internal/zookeepertest"
)

// ZooKeeper's own command line, what zkCli.sh runs, works with the embedded server.
func TestTheCommandLineOfZooKeeperWorks(t *testing.T) {
	cli := zookeepertest.CommandLine(t)
	s := listen(t, Config{})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, cli, "-server", s.Addr())
	cmd.Stdin = strings.NewReader(strings.Join([]string{
		"create /x hello", "create -s -e /x/n- numbered", "ls /x", "ls -R /", "get -s /x", "set -v 0 /x bye", "set -v 0 /x late", "stat /x",
		"getAcl /x", "sync /x", "ls -w /", "create /y", "deleteall /x", "ls /", "delete /y", "get /y", "addauth digest user:pass", "addWatch /", "ls /", "quit", "",
	}, "\n"))
	b, err := cmd.CombinedOutput()
	out := string(b)
	for _, want := range []string{
		"Created /x\n", "Created /x/n-0000000000", "[n-0000000000]", "hello\n", "dataVersion = 0", "dataLength = 5",
		"version No is not valid : /x", "dataVersion = 1", "dataLength = 3", "numChildren = 1", "'world,'anyone", "Sync is OK",
		"type:NodeChildrenChanged path:/\n", "\n[y]\n", "Node does not exist: /y", "Unimplemented",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q", want)
		}
	}
	if err != nil || t.Failed() {
		t.Fatalf("%v\n%s", err, out)
	}
	if s.stats.received.Load() == 0 {
		t.Error("the server saw no request")
	}
}
