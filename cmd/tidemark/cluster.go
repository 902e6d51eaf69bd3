package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tidemark-log/tidemark/harness/sut"
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
later or more, at once. A cluster whose --dir holds one that ran before goes on where that stopped.`,
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

// runCluster runs until ctx ends, or a process does by itself.
func runCluster(ctx context.Context, spec sut.ClusterSpec) error {
	own, cancel := context.WithCancel(context.WithoutCancel(ctx)) // the processes are stopped, not killed, when ctx ends
	defer cancel()
	abort := context.AfterFunc(ctx, cancel) // but while they start, which may wait long for one that does not, nothing is lost with them
	c, err := sut.StartCluster(own, spec)
	if err == nil && !abort() {
		c.Kill()
		err = ctx.Err()
	}
	if err != nil {
		return err
	}
	fmt.Println(c.Bootstrap())
	fmt.Fprintf(os.Stderr, "%d brokers serve, zookeeper=%s; Ctrl-C stops them\n", spec.Brokers, c.ZooKeeper)
	select {
	case <-ctx.Done():
		return c.Stop()
	case err := <-c.Exited(own):
		c.Kill()
		return errors.Join(err, errors.New("the cluster is stopped"))
	}
}
