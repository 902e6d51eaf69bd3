package main

import (
	"bufio"
	"io"
	"net"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
)

type silent struct{}

func (silent) Printf(string, ...any) {}

// startZooKeeper runs "tidemark zookeeper" and gives the address of its ready line.
func startZooKeeper(t *testing.T, args ...string) (addr string, cmd *exec.Cmd) {
	t.Helper()
	cmd = tidemark(t.Context(), append([]string{"zookeeper", "--listen", "127.0.0.1:0"}, args...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	addr, ok := strings.CutPrefix(strings.TrimSpace(line), "tidemark zookeeper ready listener=")
	if !ok {
		t.Fatalf("the first line is %q (%v)", line, err)
	}
	return addr, cmd
}

func TestZooKeeperServesAndKeepsItsDirectory(t *testing.T) {
	dir := t.TempDir()
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		addr, cmd := startZooKeeper(t, "--dir", dir)
		conn, _, err := zk.Connect([]string{addr}, 10*time.Second, zk.WithLogger(silent{}))
		if err != nil {
			t.Fatal(err)
		}
		if signal == syscall.SIGTERM {
			_, err = conn.Create("/kept", []byte("data"), 0, zk.WorldACL(zk.PermAll))
		} else {
			_, _, err = conn.Get("/kept")
		}
		if err != nil {
			t.Fatal(err)
		}
		conn.Close()
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Fatalf("after %v: %v", signal, err)
		}
	}
}

func TestZooKeeperRefusesWhatItCannotHave(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, args := range [][]string{{"--listen", taken.Addr().String()}, {"--listen", "nowhere"}, {"--listen", "127.0.0.1:0", "--dir", "/dev/null/x"}} {
		root := rootCommand()
		root.SetOut(io.Discard)
		root.SetArgs(append([]string{"zookeeper"}, args...))
		if err := root.ExecuteContext(patient(t)); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: %v, and not one line", args, err)
		}
	}
}
