// Package sut runs the systems under test: each in a process of its own, found
// by its pid, and gone when the caller is done with it, whatever happened.
package sut

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// ProcessSpec says what to start.
type ProcessSpec struct {
	Path string
	Args []string
	Env  []string // added to this process's own
	// Ready says whether a line of standard output means that the process serves.
	Ready func(line string) bool
	// ReadyWithin bounds the wait for that line; 0: one minute.
	ReadyWithin time.Duration
	Cgroup      *Cgroup // nil: this process's own
	// Log is a file that gets all that the process prints to standard error, after what is there; empty: only the end is kept.
	Log string
	// Descriptors is how many files it may have open, and may not raise; 0: as this process.
	Descriptors int
}

// Process is a started process.
type Process struct {
	cmd        *exec.Cmd
	readyLine  string
	readyAfter time.Duration
	output     *tail
	stderr     *tail // of output, what came from there
	exited     chan struct{}
	stopCtx    func() bool
}

// Start starts the process and waits until it is ready. It is killed when ctx
// ends, and when this process dies.
func Start(ctx context.Context, s ProcessSpec) (*Process, error) {
	path, args := s.Path, s.Args
	if s.Descriptors > 0 { // soft and hard: Go's runtime raises the soft limit
		path, args = "/bin/sh", append([]string{"-c", `ulimit -n "$0" && exec "$@"`, strconv.Itoa(s.Descriptors), path}, args...)
	}
	if s.Cgroup != nil {
		path, args = s.Cgroup.wrap(path, args)
	}
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), s.Env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true} // its own group: Ctrl-C is for us to pass on
	cmd.WaitDelay = time.Second                                                       // a child of its own that lives on must not keep its end from being seen
	p := &Process{cmd: cmd, output: &tail{}, stderr: &tail{}, exited: make(chan struct{})}
	out, w := io.Pipe()
	cmd.Stdout, cmd.Stderr = w, io.MultiWriter(p.output, p.stderr)
	var log *os.File
	if s.Log != "" {
		var err error
		if log, err = os.OpenFile(s.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644); err != nil {
			return nil, fmt.Errorf("sut: %w", err)
		}
		cmd.Stderr = io.MultiWriter(p.output, p.stderr, log)
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		log.Close() // of nil, too
		return nil, fmt.Errorf("sut: start %s: %w", s.Path, err)
	}
	ready := make(chan string, 1)
	go p.readLines(out, s.Ready, ready)
	go func() {
		cmd.Wait()
		w.Close()
		log.Close()
		close(p.exited)
	}()
	p.stopCtx = context.AfterFunc(ctx, p.kill)
	within := s.ReadyWithin
	if within == 0 {
		within = time.Minute
	}
	timer := time.NewTimer(within)
	defer timer.Stop()
	select {
	case p.readyLine = <-ready:
		p.readyAfter = time.Since(began)
		return p, nil
	case <-p.exited:
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("sut: %s %s ended before it was ready (%s): %s", s.Path, strings.Join(s.Args, " "), cmd.ProcessState, p.output)
	case <-timer.C:
		p.Kill()
		return nil, fmt.Errorf("sut: %s %s was not ready within %s: %s", s.Path, strings.Join(s.Args, " "), within, p.output)
	}
}

func (p *Process) readLines(r io.Reader, isReady func(string) bool, ready chan<- string) {
	lines := bufio.NewScanner(r)
	found := false
	for lines.Scan() {
		line := lines.Text()
		if !found && isReady(line) {
			found = true
			ready <- line
			continue
		}
		fmt.Fprintln(p.output, line)
	}
	io.Copy(io.Discard, r) // a line too long to scan must not block the process
}

// PID is the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// ReadyLine is the line that said the process serves.
func (p *Process) ReadyLine() string { return p.readyLine }

// ReadyAfter is the time from start to that line.
func (p *Process) ReadyAfter() time.Duration { return p.readyAfter }

// Output is the end of what the process printed.
func (p *Process) Output() string { return p.output.String() }

// HowEnded says of a process that has ended by what, and the last line of what it wrote
// to standard error: "exit status 3: no such directory", "signal: killed". Of a panic
// that is the line which names it, and not the end of the stacks behind it.
func (p *Process) HowEnded() string {
	how, last := p.State(), ""
	for line := range strings.Lines(p.stderr.text()) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		last = line
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
			break
		}
	}
	if last == "" {
		return how
	}
	return how + ": " + last
}

// State is by what a process that has ended did: "exit status 3", "signal: killed".
func (p *Process) State() string {
	<-p.exited
	return p.cmd.ProcessState.String()
}

// Exited is closed when the process has ended.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// HasExited says whether the process has ended.
func (p *Process) HasExited() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// End is how a process that has ended did, and what it said last.
func (p *Process) End() string { return fmt.Sprintf("%s: %s", p.cmd.ProcessState, p.output) }

// Stop asks the process to end, waits, and kills it after grace.
func (p *Process) Stop(grace time.Duration) error {
	p.cmd.Process.Signal(syscall.SIGTERM)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.exited:
		p.stopCtx()
		if code := p.cmd.ProcessState.ExitCode(); code != 0 {
			return fmt.Errorf("sut: %s ended with %s: %s", p.cmd.Path, p.cmd.ProcessState, p.output)
		}
		return nil
	case <-timer.C:
		p.Kill()
		return fmt.Errorf("sut: %s did not end within %s of SIGTERM and was killed: %s", p.cmd.Path, grace, p.output)
	}
}

// Kill ends the process with kill -9 and waits for its end. It may be called again.
func (p *Process) Kill() {
	p.kill()
	if p.stopCtx != nil {
		p.stopCtx()
	}
}

// kill is Kill for the end of Start's context, which may come before there is a stopCtx.
func (p *Process) kill() {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return
	}
	select {
	case <-p.exited: // its process id may be somebody else's by now
	default:
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) // what it started, by its process group
	}
	<-p.exited
}

// tail keeps the end of what is written to it.
type tail struct {
	mu sync.Mutex
	b  []byte
}

const tailBytes = 4096

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, b...)
	if over := len(t.b) - tailBytes; over > 0 {
		t.b = t.b[:copy(t.b, t.b[over:])]
	}
	return len(b), nil
}

func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.b))
}

func (t *tail) String() string {
	if text := t.text(); text != "" {
		return text
	}
	return "(it printed nothing)"
}
