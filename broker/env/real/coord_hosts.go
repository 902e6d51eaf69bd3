package real

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/tidemark-log/tidemark/broker/coord"
)

// parseConnect takes Kafka's zookeeper.connect apart: host:port,host:port/chroot.
func parseConnect(connect string) (servers []string, chroot string, err error) {
	list, chroot := connect, ""
	if i := strings.IndexByte(connect, '/'); i >= 0 {
		list, chroot = connect[:i], connect[i:]
	}
	if chroot == "/" {
		chroot = ""
	}
	if chroot != "" && coord.ValidatePath(chroot) != nil {
		return nil, "", fmt.Errorf("zookeeper.connect %q: %q is no path", connect, chroot)
	}
	for _, server := range strings.Split(list, ",") {
		server = strings.TrimSpace(server)
		if _, _, err := net.SplitHostPort(server); err != nil {
			server = net.JoinHostPort(server, "2181")
		}
		if host, port, err := net.SplitHostPort(server); err != nil || host == "" || port == "" {
			return nil, "", fmt.Errorf("zookeeper.connect %q: want host:port,…[/chroot]", connect)
		}
		servers = append(servers, server)
	}
	return servers, chroot, nil
}

// Waits between rounds of connection attempts.
const (
	backoffMin = 10 * time.Millisecond
	backoffMax = 500 * time.Millisecond
)

// hosts says which server is tried next. The library's own provider makes it
// sleep a second before every reconnection to a lone server; this one waits by
// itself, and only from the second round on. It resolves names anew with each attempt.
type hosts struct {
	mu        sync.Mutex
	servers   []string
	next      int
	failed    int // attempts since the last that got a session
	connected time.Time
	closed    chan struct{}
	once      sync.Once
}

func newHosts() *hosts { return &hosts{closed: make(chan struct{})} }

// Init takes the servers, shuffled already.
func (h *hosts) Init(servers []string) error {
	h.servers = servers
	return nil
}

// Len is how many servers there are.
func (h *hosts) Len() int { return len(h.servers) }

// Next gives the server to try, after a wait where one is due. retryStart, on which the library sleeps
// too, is true only when all is over: that is the one point at which the library looks whether it was closed.
func (h *hosts) Next() (server string, retryStart bool) {
	h.mu.Lock()
	wait := h.wait()
	server = h.servers[h.next]
	h.next = (h.next + 1) % len(h.servers)
	h.failed++
	h.mu.Unlock()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return server, false
	case <-h.closed:
		return server, true
	}
}

// wait doubles from round to round, with jitter. A session that was lost as soon as
// it was there counts as a failed attempt. Called with the lock.
func (h *hosts) wait() time.Duration {
	if h.failed == 0 && time.Since(h.connected) < backoffMin {
		h.failed = len(h.servers)
	}
	round := h.failed / len(h.servers)
	if round == 0 || h.failed%len(h.servers) != 0 {
		return 0
	}
	d := min(backoffMin<<min(round-1, 10), backoffMax)
	return d/2 + rand.N(d/2+1)
}

// Connected notes that the last server gave a session.
func (h *hosts) Connected() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failed, h.connected = 0, time.Now()
}

// close ends all attempts.
func (h *hosts) close() { h.once.Do(func() { close(h.closed) }) }

func (h *hosts) isClosed() bool {
	select {
	case <-h.closed:
		return true
	default:
		return false
	}
}
