package workload

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"github.com/tidemark-log/tidemark/harness/sample"
)

// crowdSpent is what processes have spent since they were started.
type crowdSpent struct {
	brokerCPU, zookeeperCPU float64
	syncs, requests         int64
	descriptors             int // of the broker that has most now
	rss                     int64
}

func (r *crowd) spent(ids []int) (s crowdSpent, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, id := range ids {
		broker := r.cluster.Brokers[id-1]
		pid := broker.Process().PID()
		cpu, err := cpuOf(pid)
		if err != nil {
			return s, err
		}
		s.brokerCPU += cpu
		sampler, err := sample.New(pid, broker.Admin)
		if err != nil {
			return s, err
		}
		counters, err := sampler.Counters(ctx)
		if err != nil {
			return s, err
		}
		s.syncs += counters.Syncs()
		rss, err := sampler.RSS()
		if err != nil {
			return s, err
		}
		s.rss += rss
		open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		if err != nil {
			return s, fmt.Errorf("workload: %w", err)
		}
		s.descriptors = max(s.descriptors, len(open))
	}
	if s.zookeeperCPU, err = cpuOf(r.cluster.ZooKeeperProcess().PID()); err != nil {
		return s, err
	}
	s.requests, err = zookeeperRequests(r.cluster.ZooKeeper)
	return s, err
}

// cpuOf is the user and system time of a process in seconds, that of threads which have ended included.
func cpuOf(pid int) (float64, error) {
	proc, err := procfs.NewProc(pid)
	if err != nil {
		return 0, fmt.Errorf("workload: process %d: %w", pid, err)
	}
	stat, err := proc.Stat()
	if err != nil {
		return 0, fmt.Errorf("workload: process %d: %w", pid, err)
	}
	return stat.CPUTime(), nil
}

// zookeeperRequests is how many packets ZooKeeper has received, as it says to srvr.
func zookeeperRequests(addr string) (int64, error) {
	conn, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		return 0, fmt.Errorf("workload: %w", err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := io.WriteString(conn, "srvr"); err != nil {
		return 0, fmt.Errorf("workload: %w", err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		return 0, fmt.Errorf("workload: %w", err)
	}
	for line := range strings.Lines(string(answer)) {
		if n, ok := strings.CutPrefix(line, "Received: "); ok {
			return strconv.ParseInt(strings.TrimSpace(n), 10, 64)
		}
	}
	return 0, fmt.Errorf("workload: srvr did not tell what was received: %q", answer)
}
