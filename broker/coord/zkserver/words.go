package zkserver

import (
	"fmt"
	"sort"
	"strings"

	"github.com/tidemark-log/tidemark/broker/coord"
)

const version = "3.8.4-tidemark, built on 01/01/2026 00:00 UTC"

// knownWords are ZooKeeper's; those not in servedWords are refused as it refuses what is not in its whitelist.
var (
	servedWords = []string{"conf", "isro", "mntr", "ruok", "srvr", "stat"}
	otherWords  = "cons crst dirs dump envi gtmk hash kill lead srst stmk wchc wchp wchs"
)

// fourLetterWord answers a command; ok is false when it is none, but the length of a frame.
func (s *Server) fourLetterWord(word string) (answer string, ok bool) {
	i := sort.SearchStrings(servedWords, word)
	if i == len(servedWords) || servedWords[i] != word {
		if strings.Contains(otherWords, word) && !strings.Contains(word, " ") {
			return word + " is not executed because it is not in the whitelist.\n", true
		}
		return "", false
	}
	switch word {
	case "ruok":
		return "imok", true
	case "isro":
		return "rw", true
	}
	s.call(func() {
		switch word {
		case "srvr":
			answer = s.summary("")
		case "stat":
			answer = s.summary(s.clients())
		case "mntr":
			answer = s.monitor()
		case "conf":
			answer = s.configuration()
		}
	})
	return answer, true
}

// summary is what srvr and stat say. Called in the core.
func (s *Server) summary(clients string) string {
	c := s.core
	avg := 0.0
	if l := c.latency; l.count > 0 {
		avg = float64(l.sum) / float64(l.count) / 1000
	}
	return fmt.Sprintf("Zookeeper version: %s\n%sLatency min/avg/max: %d/%.4f/%d\nReceived: %d\nSent: %d\nConnections: %d\nOutstanding: %d\nZxid: 0x%x\nMode: standalone\nNode count: %d\n",
		version, clients, c.latency.min/1000, avg, c.latency.max/1000,
		s.stats.received.Load(), s.stats.sent.Load(), s.stats.connections.Load(), s.outstanding(), c.tree.Zxid(), c.tree.Len())
}

func (s *Server) outstanding() int64 { return s.stats.outstanding.Load() + int64(len(s.core.arrived)) }

func (s *Server) clients() string {
	var b strings.Builder
	b.WriteString("Clients:\n")
	s.mu.Lock()
	defer s.mu.Unlock()
	peers := make([]string, 0, len(s.conns))
	for c := range s.conns {
		peers = append(peers, c.peer)
	}
	sort.Strings(peers)
	for _, p := range peers {
		fmt.Fprintf(&b, " /%s[1](queued=0)\n", p)
	}
	b.WriteString("\n")
	return b.String()
}

// monitor is what mntr says. Called in the core.
func (s *Server) monitor() string {
	c := s.core
	var b strings.Builder
	line := func(name string, value any) { fmt.Fprintf(&b, "zk_%s\t%v\n", name, value) }
	line("version", version)
	line("server_state", "standalone")
	line("avg_latency", float64(c.latency.sum)/float64(max(c.latency.count, 1))/1000)
	line("max_latency", c.latency.max/1000)
	line("min_latency", c.latency.min/1000)
	line("packets_received", s.stats.received.Load())
	line("packets_sent", s.stats.sent.Load())
	line("num_alive_connections", s.stats.connections.Load())
	line("outstanding_requests", s.outstanding())
	line("znode_count", c.tree.Len())
	line("watch_count", c.tree.Watches())
	line("ephemerals_count", c.tree.Ephemerals())
	line("global_sessions", len(c.tree.Sessions()))
	line("stale_sessions_expired", s.stats.expired.Load())
	return b.String()
}

func (s *Server) configuration() string {
	return fmt.Sprintf("clientPort=%s\ndataDir=%s\ntickTime=%d\nmaxClientCnxns=%d\nminSessionTimeout=%d\nmaxSessionTimeout=%d\nserverId=0\njute.maxbuffer=%d\n",
		s.Addr()[strings.LastIndexByte(s.Addr(), ':')+1:], s.cfg.Dir, coord.TickMs, s.cfg.ConnectionsMax, 2*coord.TickMs, 20*coord.TickMs, frameBytesMax)
}

func hex(id coord.SessionID) string { return fmt.Sprintf("0x%x", int64(id)) }
