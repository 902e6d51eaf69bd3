package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// saysWhole waits until a whole line that was said matches, and gives its groups.
func (l *lockedBuffer) saysWhole(t *testing.T, line string) []string {
	t.Helper()
	want := regexp.MustCompile("(?m)^" + line + "\n")
	for limit := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if m := want.FindStringSubmatch(l.String()); m != nil {
			return m
		}
		if time.Now().After(limit) {
			t.Fatalf("no line %s in: %s", line, l)
		}
	}
}

func signalProcess(t *testing.T, pid string, signal syscall.Signal) {
	t.Helper()
	var n int
	if _, err := fmt.Sscan(pid, &n); err != nil || n <= 1 {
		t.Fatalf("pid %q: %v", pid, err)
	}
	if err := syscall.Kill(n, signal); err != nil {
		t.Fatal(err)
	}
}

// A broker that is killed leaves the cluster to the others, and comes back by the command that was told. The cluster stops
// in good order; the broker that was started by hand is nothing to it.
func TestAClusterGoesOnWithoutABrokerThatIsKilled(t *testing.T) {
	cmd, said := startClusterCommand(t, "--brokers", "2", "--dir", t.TempDir()+"/with space", "--set", "zookeeper.session.timeout.ms=4000")
	victim := said.saysWhole(t, `2 brokers serve, pids \d+ (\d+), .*`)[1]
	signalProcess(t, victim, syscall.SIGKILL)
	again := said.saysWhole(t, `tidemark: broker 2 \(pid `+victim+`\) has ended \(signal: killed\); the others go on; to start it again: (.*)`)[1]

	byHand := exec.CommandContext(t.Context(), "/bin/sh", "-c", "exec "+again)
	byHand.Env = append(os.Environ(), asMain+"=1")
	byHand.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := byHand.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := byHand.Start(); err != nil {
		t.Fatal(err)
	}
	ready, err := bufio.NewReader(out).ReadString('\n')
	if m := readyLine.FindStringSubmatch(strings.TrimSpace(ready)); err != nil || m == nil || !strings.Contains(again, "listeners=PLAINTEXT://"+m[1]+" ") {
		t.Fatalf("%q, %v, of %s", ready, err, again)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if status := exitCode(t, cmd); status != 0 || strings.Count(said.String(), "\n") != 2 {
		t.Errorf("exit status %d, it said %s", status, said)
	}
	if err := byHand.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if status := exitCode(t, byHand); status != 0 {
		t.Errorf("the broker that was started by hand: exit status %d", status)
	}
}

func TestAClusterEndsWithItsLastBrokerOrItsZooKeeper(t *testing.T) {
	for _, c := range []struct{ victim, says string }{
		{"broker", `tidemark: broker 1 \(pid \d+\) has ended \(signal: killed\), the last that this command had started; the cluster is stopped`},
		{"zookeeper", `tidemark: the embedded ZooKeeper \(pid \d+\) has ended \(signal: killed\); the cluster is stopped`},
	} {
		cmd, said := startClusterCommand(t, "--brokers", "1", "--dir", t.TempDir())
		pid := said.saysWhole(t, `1 brokers serve, pids (\d+), .*`)[1]
		if c.victim == "zookeeper" {
			for _, child := range childrenOf(t, cmd.Process.Pid) {
				if other := fmt.Sprint(child); other != pid {
					pid = other
					break
				}
			}
		}
		signalProcess(t, pid, syscall.SIGKILL)
		status := exitCode(t, cmd)
		if said.saysWhole(t, c.says); status != 1 || strings.Count(said.String(), "\n") != 2 {
			t.Errorf("%s: exit status %d, it said %s", c.victim, status, said)
		}
	}
}

// What holds a start up for long is told, once.
func TestASlowStartOfAClusterSaysWhatItWaitsFor(t *testing.T) {
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody.Close()
	dead := nobody.Addr().String()
	text, err := tidemark(patient(t), "cluster", "--brokers", "2", "--dir", t.TempDir(), "--zookeeper", dead, "--set", "zookeeper.connection.timeout.ms=3000").CombinedOutput()
	if says := "tidemark: brokers 1, 2 do not serve yet: no ZooKeeper answers (dial tcp " + dead; err == nil || strings.Count(string(text), says) != 1 ||
		!strings.Contains(string(text), "give up after 3s") {
		t.Errorf("%v, and not once %q: %s", err, says, text)
	}

	args := []string{"--brokers", "1", "--dir", t.TempDir(), "--set", "zookeeper.session.timeout.ms=4000"}
	cmd, said := startClusterCommand(t, args...)
	children := childrenOf(t, cmd.Process.Pid)
	if err := cmd.Process.Kill(); err != nil { // and what it started goes with it
		t.Fatal(err)
	}
	exitCode(t, cmd)
	for _, pid := range children {
		for alive(pid) {
			time.Sleep(5 * time.Millisecond)
		}
	}
	if strings.Contains(said.String(), "yet") {
		t.Errorf("the first start waited: %s", said)
	}
	cmd, said = startClusterCommand(t, args...)
	said.saysWhole(t, `tidemark: broker 1 does not serve yet: .* old session has ended, some 6s at most .*`)
	said.saysWhole(t, `1 brokers serve, .*`)
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if status := exitCode(t, cmd); status != 0 || strings.Count(said.String(), "\n") != 2 {
		t.Errorf("exit status %d, it said %s", status, said)
	}
}
