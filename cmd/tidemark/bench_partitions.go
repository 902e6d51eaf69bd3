package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tidemark-log/tidemark/harness/workload"
)

func benchPartitionsCommand() *cobra.Command {
	var asJSON bool
	var set []string
	var only string
	c := workload.Crowd{Brokers: 3, Partitions: 10_000, Descriptors: 4096}
	cmd := &cobra.Command{
		Use: "partitions", Short: "The big moments of a cluster with very many partitions", Args: cobra.NoArgs,
		Long: `Start a cluster of its own with the embedded ZooKeeper, and time what concerns
every partition of one topic with three replicas: its creation, kill -9 of one
broker and its start again, a clean restart of all brokers, and kill -9 of all at
once and their start.

Each moment lasts from the request or kill until every partition has acknowledged
one more record with acks=all. So a start includes opening and recovering the logs,
the end of the dead brokers' sessions, and the election. A restart of all is bounded
from the start of the processes until every partition is led. After the death of one
broker every partition that it led must have acknowledged a record within the session
timeout, one tick of ZooKeeper, and half a second for each thousand of them.

Exit status 0 only when every moment that has a bound kept it, and every stop was clean.`,
		Example: `  tidemark bench partitions
  tidemark bench partitions --partitions 1000 --descriptors 1024 --json`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if c.Brokers < 2 || c.Brokers > 100 || c.Partitions < 1 || c.Partitions > 200_000 {
				return errors.New("want --brokers 2 to 100, --partitions 1 to 200000")
			}
			if only != "" {
				var err error
				if c.Only, err = regexp.Compile(only); err != nil {
					return fmt.Errorf("--only %s: %w", only, err)
				}
			}
			c.Overrides = map[string]string{"zookeeper.session.timeout.ms": "4000"}
			for _, s := range set {
				key, value, ok := strings.Cut(s, "=")
				if !ok {
					return fmt.Errorf("--set %s: want key=value", s)
				}
				c.Overrides[key] = value
			}
			dir, cleanup, err := scratchDir(c.Dir)
			if err != nil {
				return err
			}
			defer cleanup()
			c.Dir = dir
			if c.Binary, err = os.Executable(); err != nil {
				return err
			}
			return runBenchPartitions(cmd, c, asJSON)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&asJSON, "json", false, "print JSON")
	f.StringVar(&c.Dir, "dir", "", "directory on the disk to use (default: the current one)")
	f.IntVar(&c.Brokers, "brokers", c.Brokers, "how many brokers")
	f.IntVar(&c.Partitions, "partitions", c.Partitions, "how many partitions")
	f.IntVar(&c.Descriptors, "descriptors", c.Descriptors, "how many files each broker may have open, a hard limit; 0: as many as this process")
	f.StringVar(&only, "only", "", "after the creation only moments whose name matches this regular expression")
	f.StringArrayVar(&set, "set", nil, "key=value, of every broker; may be repeated")
	return cmd
}

func runBenchPartitions(cmd *cobra.Command, c workload.Crowd, asJSON bool) error {
	bar := newProgress(os.Stderr)
	step := 0
	c.Progress = func(what string) { step++; bar.step(min(step, crowdSteps), crowdSteps, what) }
	if !asJSON {
		c.OnMoment = func(m workload.Moment) { bar.end(); printMoment(os.Stdout, &m) }
	}
	moments, err := c.Run(cmd.Context())
	bar.end()
	if asJSON { // also those before an error
		if e := printJSON(moments); err == nil {
			err = e
		}
	}
	if err != nil {
		return err
	}
	var over []string
	for i := range moments {
		if m := &moments[i]; !m.Held() {
			if m.Wrong != "" {
				over = append(over, m.Name+": "+m.Wrong)
			}
			if m.Bound.Sec > 0 && m.Bounded() > m.Bound.Sec {
				over = append(over, fmt.Sprintf("%s took %.1f s, over its bound of %.1f s", m.Name, m.Bounded(), m.Bound.Sec))
			}
		}
	}
	if len(over) > 0 {
		return errors.New(strings.Join(over, "; "))
	}
	return nil
}

// crowdSteps is how often a Crowd tells of progress.
const crowdSteps = 18

func printMoment(w io.Writer, m *workload.Moment) {
	bound := ""
	switch b := m.Bound; {
	case b.Sec > 0 && b.From == "" && b.To != "":
		bound = fmt.Sprintf("  (%s after %.1f s; bound %.1f s)", b.To, m.Bounded(), b.Sec)
	case b.Sec > 0 && b.To != "":
		bound = fmt.Sprintf("  (%s %.1f s after %s; bound %.1f s)", b.To, m.Bounded(), b.From, b.Sec)
	case b.Sec > 0:
		bound = fmt.Sprintf("  (bound %.1f s)", b.Sec)
	}
	fmt.Fprintf(w, "%-34s %8.2f s%s\n", m.Name, m.Sec, bound)
	for _, p := range m.Parts {
		fmt.Fprintf(w, "    %-30s %8.2f s\n", p.What, p.Sec)
	}
	fmt.Fprintf(w, "    CPU: brokers %.1f s, zookeeper %.1f s; %d syncs, %d requests to zookeeper; at most %d open files; %.0f MB resident\n",
		m.BrokerCPU, m.ZooKeeperCPU, m.Syncs, m.Requests, m.Descriptors, float64(m.RSS)/1e6)
}
