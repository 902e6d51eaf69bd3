package main

import (
	"bufio"
	"bytes"
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

// A cluster whose broker does not stop ends at the second signal, and leaves nothing behind.
func TestASecondSignalEndsAClusterAtOnce(t *testing.T) {
	cmd := tidemark(t.Context(), "cluster", "--brokers", "1", "--dir", t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("the first line is %q (%v): %s", line, err, said.String())
	}
	children := childrenOf(t, cmd.Process.Pid)
	if len(children) != 2 {
		t.Fatalf("%d children", len(children))
	}
	for _, pid := range children { // so that none of them stops, and none looks at its parent
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
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
