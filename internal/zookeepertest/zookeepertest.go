// Package zookeepertest runs real ZooKeeper servers for tests, or skips where
// the machine cannot: what we say of ZooKeeper is held against the original.
package zookeepertest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidemark-log/tidemark/internal/need"
)

// Server is a running ZooKeeper.
type Server struct {
	Addr string
	cmd  *exec.Cmd
	args []string
}

// Start runs a lone server until the test ends.
func Start(t testing.TB) *Server { return StartIn(t, memoryDir(t)) }

// StartIn is Start with a directory for the server's data.
func StartIn(t testing.TB, dir string) *Server {
	t.Helper()
	needJava(t)
	port := FreePorts(t, 1)[0]
	s := &Server{Addr: addr(port), args: []string{strconv.Itoa(port), dir}}
	s.start(t, "PrepRequestProcessor (sid:0) started")
	return s
}

// StartEnsemble runs three servers, which have a leader when it returns, until the test ends.
func StartEnsemble(t testing.TB) []*Server {
	t.Helper()
	needJava(t)
	ports := FreePorts(t, 9)
	var peers []string
	for i := range 3 {
		peers = append(peers, fmt.Sprintf("%d:%d", ports[3+2*i], ports[4+2*i]))
	}
	servers := make([]*Server, 3)
	ready := make(chan error, 3)
	for i := range servers {
		s := &Server{Addr: addr(ports[i]), args: []string{strconv.Itoa(ports[i]), memoryDir(t), strconv.Itoa(i + 1), strings.Join(peers, ",")}}
		servers[i] = s
		lines := s.launch(t)
		go func() {
			ready <- waitFor(lines, ensembleReady...)
		}()
	}
	for range servers {
		if err := <-ready; err != nil {
			need.Skip(t, "java", err.Error())
		}
	}
	return servers
}

// ensembleReady is what a server of an ensemble says when it serves.
var ensembleReady = []string{"Peer state changed: leading - broadcast", "Peer state changed: following - broadcast"}

// Rejoin starts a server of an ensemble again that was killed, and waits until it serves.
func (s *Server) Rejoin(t testing.TB) {
	t.Helper()
	if err := waitFor(s.launch(t), ensembleReady...); err != nil {
		t.Fatal(err)
	}
}

// Leads says whether the server leads its ensemble now.
func (s *Server) Leads() bool {
	c, err := net.DialTimeout("tcp", s.Addr, 5*time.Second)
	if err != nil {
		return false
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Write([]byte("srvr")); err != nil {
		return false
	}
	said, _ := io.ReadAll(c)
	return strings.Contains(string(said), "Mode: leader")
}

// Addrs are where the servers listen for clients, as a connect string.
func Addrs(servers []*Server) string {
	addrs := make([]string, len(servers))
	for i, s := range servers {
		addrs[i] = s.Addr
	}
	return strings.Join(addrs, ",")
}

// memoryDir is in memory where the machine has such a place: a ZooKeeper that waits for a
// busy disk is of no use to a test.
func memoryDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "zookeeper")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func addr(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func needJava(t testing.TB) {
	t.Helper()
	tools := []string{"java"}
	if _, err := os.Stat("/usr/share/java/zookeeper.jar"); err != nil { // Debian's; without it Maven fetches one
		tools = append(tools, "mvn")
	}
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			need.Skip(t, "java", tool+" is not installed (scripts/test installs openjdk-17-jdk-headless, maven and libzookeeper-java with apt where it is root on Debian)")
		}
	}
}

// FreePorts finds ports that nobody listens on now. They lie below those that the system
// gives to connections of its own accord, so that nobody takes one by accident before the server does.
func FreePorts(t testing.TB, n int) []int {
	t.Helper()
	var ports []int
	for tries := 0; len(ports) < n; tries++ {
		l, err := net.Listen("tcp", addr(20_000+rand.IntN(12_000)))
		if err != nil {
			if tries > 1000 {
				t.Fatal(err)
			}
			continue
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

// Script is the path of a script of scripts/zookeeper.
func Script(t testing.TB, name string) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; ; dir = filepath.Dir(dir) {
		_, err := os.Stat(filepath.Join(dir, "go.mod"))
		if err == nil {
			return filepath.Join(dir, "scripts", "zookeeper", name)
		}
		if !errors.Is(err, fs.ErrNotExist) || dir == "/" {
			t.Fatalf("the module's root was not found: %v", err)
		}
	}
}

func (s *Server) start(t testing.TB, ready string) {
	t.Helper()
	if err := waitFor(s.launch(t), ready); err != nil {
		need.Skip(t, "java", err.Error())
	}
}

// launch runs the process and gives what it prints.
func (s *Server) launch(t testing.TB) *bufio.Scanner {
	t.Helper()
	s.cmd = exec.Command(Script(t, "run"), s.args...)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.cmd.Stderr = s.cmd.Stdout
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Kill)
	return bufio.NewScanner(out)
}

// Kill ends the server at once.
func (s *Server) Kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
}

// waitFor reads until one of the words comes, and goes on reading: the process must not block on a full pipe.
func waitFor(lines *bufio.Scanner, words ...string) error {
	var said strings.Builder
	for lines.Scan() {
		fmt.Fprintln(&said, lines.Text())
		for _, word := range words {
			if strings.Contains(lines.Text(), word) {
				go func() {
					for lines.Scan() {
					}
				}()
				return nil
			}
		}
	}
	return fmt.Errorf("ZooKeeper did not start (without a network Maven cannot fetch it): %.500s", said.String())
}

// CommandLine is a command that runs ZooKeeper's own command line, as zkCli.sh does; or the test is skipped.
func CommandLine(t testing.TB) string {
	t.Helper()
	needJava(t)
	cli := Script(t, "cli")
	if out, err := exec.Command(cli, "--fetch-only").CombinedOutput(); err != nil {
		need.Skip(t, "java", fmt.Sprintf("ZooKeeper's jars are not there (without a network Maven cannot fetch them): %.500s", out))
	}
	return cli
}
