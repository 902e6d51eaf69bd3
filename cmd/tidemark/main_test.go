package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tidemark-log/tidemark/broker/server"
)

// A test that needs the real binary starts this one again as tidemark.
const asMain = "TIDEMARK_TEST_AS_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(asMain) != "" {
		main()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// tidemark is the command, not yet started.
func tidemark(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	cmd.Env = append(os.Environ(), asMain+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// lockedBuffer collects what a process prints.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}
func (l *lockedBuffer) String() string { l.mu.Lock(); defer l.mu.Unlock(); return l.b.String() }

// brokerProcess is a broker in a process of its own.
type brokerProcess struct {
	t     testing.TB
	cmd   *exec.Cmd
	addr  string
	admin string
	ready time.Duration // from start to the ready line
	err   *lockedBuffer
	ended chan error
}

var readyLine = regexp.MustCompile(`^tidemark broker ready listener=(\S+) admin=(\S+) cluster=(\S+) in=(\S+)$`)

// startBroker starts a broker on free ports with its data in dir, and settings
// "key=value". When the test ends it is shut down, must end well, and must have recovered no panic.
func startBroker(t testing.TB, dir string, settings ...string) *brokerProcess {
	t.Helper()
	args := []string{"broker", "--set", "listeners=PLAINTEXT://127.0.0.1:0", "--set", "lab.admin.listener=127.0.0.1:0", "--set", "log.dirs=" + dir}
	for _, s := range settings {
		args = append(args, "--set", s)
	}
	p := &brokerProcess{t: t, cmd: tidemark(context.Background(), args...), err: new(lockedBuffer), ended: make(chan error, 1)}
	p.cmd.Stderr = p.err
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	p.ready = time.Since(began)
	go func() {
		io.Copy(io.Discard, out)
		p.ended <- p.cmd.Wait()
	}()
	m := readyLine.FindStringSubmatch(strings.TrimSpace(line))
	if m == nil {
		t.Fatalf("no ready line but %q (%v); %s", line, err, p.err)
	}
	p.addr, p.admin = m[1], m[2]
	t.Cleanup(p.shutdown)
	return p
}

func (p *brokerProcess) shutdown() {
	if p.cmd == nil {
		return
	}
	if n := p.counters().Panics; n != 0 {
		p.t.Errorf("the broker recovered %d panics: %s", n, p.err)
	}
	p.cmd.Process.Signal(syscall.SIGTERM)
	if err := <-p.ended; err != nil {
		p.t.Errorf("the broker ended with %v: %s", err, p.err)
	}
	p.cmd = nil
}

// kill is kill -9.
func (p *brokerProcess) kill() {
	p.cmd.Process.Kill()
	<-p.ended
	p.cmd = nil
}

func (p *brokerProcess) get(path string) []byte {
	p.t.Helper()
	resp, err := http.Get("http://" + p.admin + path)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		p.t.Fatalf("%s: %s %v", path, resp.Status, err)
	}
	return b
}

func (p *brokerProcess) counters() (s server.Snapshot) {
	p.t.Helper()
	if err := json.Unmarshal(p.get("/counters"), &s); err != nil {
		p.t.Fatal(err)
	}
	return s
}

// procIO reads /proc/PID/io.
func (p *brokerProcess) procIO() map[string]int64 {
	p.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", p.cmd.Process.Pid))
	if err != nil {
		p.t.Fatal(err)
	}
	values := map[string]int64{}
	for _, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		var v int64
		name, rest, _ := strings.Cut(line, ": ")
		fmt.Sscan(rest, &v)
		values[name] = v
	}
	return values
}
