package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemark-log/tidemark/broker"
	"github.com/tidemark-log/tidemark/broker/coord"
	"github.com/tidemark-log/tidemark/harness/sut"
	"github.com/tidemark-log/tidemark/internal/words"
)

func init() { commands = append(commands, clusterCommand) }

func clusterCommand() *cobra.Command {
	spec := sut.ClusterSpec{}
	var overrides []string
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Run a replicated cluster on this machine",
		Long: `Run brokers 1 to N, each in a process of its own on a free loopback port, and the
embedded ZooKeeper that they coordinate through (or, with --zookeeper, another one).

The first line names the bootstrap servers. Ctrl-C or SIGTERM stops all of it; a second one, half a second
later or more, at once. A cluster whose --dir holds one that ran before goes on where that stopped.

A broker may be killed (its pid is told at the start): the others go on, and a line on standard error says
how to start it again. That is left to you, and a broker that you start is not this command's: it is not
stopped with the rest. When the last broker that this command started has ended, or the embedded ZooKeeper
has, the command stops what is left, and fails.`,
		Example: `  tidemark cluster --brokers 3 --dir /tmp/cluster
  tidemark cluster --brokers 3 --set min.insync.replicas=2
  tidemark cluster --zookeeper 127.0.0.1:2181,127.0.0.1:2182/tidemark`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if spec.Brokers < 1 || spec.Brokers > 100 {
				return fmt.Errorf("--brokers %d: want 1 to 100", spec.Brokers)
			}
			spec.Overrides = map[string]string{}
			for _, o := range overrides {
				key, value, ok := strings.Cut(o, "=")
				if !ok {
					return fmt.Errorf("--set %s: want key=value", o)
				}
				spec.Overrides[key] = value
			}
			var err error
			if spec.Binary, err = os.Executable(); err != nil {
				return err
			}
			if spec.Dir, err = filepath.Abs(spec.Dir); err != nil { // a broker may be started again from somewhere else
				return err
			}
			return runCluster(cmd.Context(), spec)
		},
	}
	f := cmd.Flags()
	f.IntVar(&spec.Brokers, "brokers", 3, "how many brokers")
	f.StringVar(&spec.Dir, "dir", "tidemark-cluster", "directory for everything that is kept")
	f.StringArrayVar(&overrides, "set", nil, "key=value, of every broker; may be repeated")
	f.StringVar(&spec.ZooKeeper, "zookeeper", "", "connect string of a ZooKeeper to use instead of the embedded one")
	return cmd
}

// runCluster runs until ctx ends, or the last broker or the embedded ZooKeeper does by itself.
func runCluster(ctx context.Context, spec sut.ClusterSpec) error {
	own, cancel := context.WithCancel(context.WithoutCancel(ctx)) // the processes are stopped, not killed, when ctx ends
	defer cancel()
	abort := context.AfterFunc(ctx, cancel) // but while they start, which may wait long for one that does not, nothing is lost with them
	_, missing := os.Stat(filepath.Join(spec.Dir, "broker-1"))
	spec.Slow = func(w sut.Waits) { fmt.Fprintln(os.Stderr, "tidemark:", slowStart(spec, missing == nil, w)) }
	c, err := sut.StartCluster(own, spec)
	if err == nil && !abort() {
		c.Kill()
		err = ctx.Err()
	}
	if err != nil {
		return err
	}
	fmt.Println(c.Bootstrap())
	var pids strings.Builder
	for _, b := range c.Brokers {
		fmt.Fprintf(&pids, " %d", b.Process().PID())
	}
	fmt.Fprintf(os.Stderr, "%d brokers serve, pids%s, zookeeper=%s; Ctrl-C stops them\n", spec.Brokers, pids.String(), c.ZooKeeper)
	ended := c.Exited(own)
	for left := spec.Brokers; ; {
		select {
		case <-ctx.Done():
			return c.StopLiving()
		case e := <-ended:
			left--
			if e.Broker == 0 {
				err = fmt.Errorf("the embedded ZooKeeper (pid %d) has ended (%s); the cluster is stopped", e.Process.PID(), howEnded(e.Process))
			} else if left == 0 {
				err = fmt.Errorf("broker %d (pid %d) has ended (%s), the last that this command had started; the cluster is stopped", e.Broker, e.Process.PID(), howEnded(e.Process))
			}
			if err != nil {
				return errors.Join(err, c.StopLiving())
			}
			again := words.Command(append([]string{spec.Binary}, c.Brokers[e.Broker-1].Args()...)...)
			fmt.Fprintf(os.Stderr, "tidemark: broker %d (pid %d) has ended (%s); the others go on; to start it again: %s\n",
				e.Broker, e.Process.PID(), howEnded(e.Process), again)
		}
	}
}

// howEnded is by what a process ended, and its last words unless it was killed: then they are of something else.
func howEnded(p *sut.Process) string {
	if state := p.State(); strings.HasPrefix(state, "signal: ") {
		return state
	}
	return p.HowEnded()
}

// slowStart says what a start waits for, and how long that may take. before: there was a cluster in the directory.
func slowStart(spec sut.ClusterSpec, before bool, w sut.Waits) string {
	if w.ZooKeeper == "" {
		return "the embedded ZooKeeper does not serve yet: it reads what is in " + filepath.Join(spec.Dir, "zookeeper")
	}
	if len(w.Brokers) == 0 {
		return "all brokers serve, but they do not all know of each other yet"
	}
	who := "broker " + strconv.Itoa(w.Brokers[0]) + " does not serve yet"
	if len(w.Brokers) > 1 {
		who = strings.ReplaceAll(strings.Trim(fmt.Sprint(w.Brokers), "[]"), " ", ", ")
		who = "brokers " + who + " do not serve yet"
	}
	var settings []string
	for key, value := range spec.Overrides {
		settings = append(settings, key+"="+value)
	}
	cfg, err := broker.ParseConfig(nil, settings)
	if err != nil {
		cfg = broker.DefaultConfig() // a broker says so itself
	}
	if err := reachable(w.ZooKeeper); err != nil {
		return fmt.Sprintf("%s: no ZooKeeper answers (%v); they give up after %s (zookeeper.connection.timeout.ms)", who, err, cfg.ZooKeeperConnectTimeout)
	}
	if !before {
		return fmt.Sprintf("%s: what they do is in %s", who, filepath.Join(spec.Dir, "broker-N", "log"))
	}
	return fmt.Sprintf("%s: where a broker was not stopped cleanly, its next start waits until its old session has ended, some %s at most (zookeeper.session.timeout.ms), and recovers its log",
		who, cfg.ZooKeeperSessionTimeout+coord.TickMs*time.Millisecond) // a session ends on a tick
}

// reachable says whether something listens at one of a connect string's addresses.
func reachable(zookeeper string) (err error) {
	hosts, _, _ := strings.Cut(zookeeper, "/")
	for host := range strings.SplitSeq(hosts, ",") {
		var conn net.Conn
		if conn, err = net.DialTimeout("tcp", strings.TrimSpace(host), time.Second); err == nil {
			return conn.Close()
		}
	}
	return err
}
