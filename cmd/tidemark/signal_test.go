package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A start that waits for what does not come is ended by a signal, not by its own patience.
func TestASignalEndsAStartThatWaits(t *testing.T) {
	for _, args := range [][]string{
		{"broker", "--set", "listeners=PLAINTEXT://127.0.0.1:0", "--set", "log.dirs=" + t.TempDir(), "--set", "zookeeper.connect="},
		{"cluster", "--brokers", "1", "--dir", t.TempDir(), "--zookeeper", ""},
	} {
		silent, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer silent.Close()
		args[len(args)-1] += silent.Addr().String()
		cmd := tidemark(t.Context(), args...)
		var said bytes.Buffer
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		asked, err := silent.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer asked.Close()
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if status := exitCode(t, cmd); status != 1 || said.String() != "tidemark: interrupted\n" {
			t.Errorf("%s: exit status %d, it said %q", args[0], status, said.String())
		}
	}
}

// startClusterCommand starts the cluster command, and waits for its first line. said is what it writes to standard error.
func startClusterCommand(t *testing.T, args ...string) (cmd *exec.Cmd, said *lockedBuffer) {
	t.Helper()
	cmd, said = tidemark(context.WithoutCancel(t.Context()), append([]string{"cluster"}, args...)...), new(lockedBuffer)
	cmd.Stderr = said
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // when the test has failed; what it started goes with it
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("the first line is %q (%v): %s", line, err, said)
	}
	return cmd, said
}

// timeout(1) signals its child and then its group, so that one wish to stop comes twice.
func TestTwoSignalsAtOnceAreOne(t *testing.T) {
	cmd, said := startClusterCommand(t, "--brokers", "2", "--dir", t.TempDir())
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} { // of one kind, two may become one on the way
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
	}
	if status := exitCode(t, cmd); status != 0 || strings.Contains(said.String(), "second signal") {
		t.Errorf("exit status %d, it said %q", status, said)
	}
}

// A cluster whose broker does not stop ends at the second signal, and leaves nothing behind.
func TestASecondSignalEndsAClusterAtOnce(t *testing.T) {
	cmd, said := startClusterCommand(t, "--brokers", "1", "--dir", t.TempDir())
	children := childrenOf(t, cmd.Process.Pid)
	if len(children) != 2 {
		t.Fatalf("%d children", len(children))
	}
	for _, pid := range children { // so that none of them stops, and none looks at its parent
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	time.Sleep(secondSignalAfter + 100*time.Millisecond) // as a person would; it sees the first one within the rest
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if status := exitCode(t, cmd); status != 130 || !strings.Contains(said.String(), "second signal") {
		t.Errorf("exit status %d, it said %q", status, said.String())
	}
	for _, pid := range children {
		for limit := time.Now().Add(patience); alive(pid); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(limit) {
				t.Fatalf("process %d was left behind", pid)
			}
		}
	}
}

func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !bytes.Contains(stat, []byte(") Z "))
}

func exitCode(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	if err := cmd.Wait(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode()
}

// childrenOf gives what a process has started, by any of its threads.
func childrenOf(t *testing.T, pid int) (children []int) {
	t.Helper()
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, thread.Name()))
		if err != nil {
			t.Fatal(err)
		}
		for _, child := range strings.Fields(string(b)) {
			n, err := strconv.Atoi(child)
			if err != nil {
				t.Fatal(err)
			}
			children = append(children, n)
		}
	}
	return children
}
