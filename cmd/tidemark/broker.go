package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tidemark-log/tidemark/broker"
	"github.com/tidemark-log/tidemark/broker/server"
)

func init() { commands = append(commands, brokerCommand) }

var processBegan = time.Now()

func brokerCommand() *cobra.Command {
	var configFile string
	var overrides []string
	var grace time.Duration
	var helpConfig bool
	cmd := &cobra.Command{
		Use:   "broker",
		Short: "Run one broker: a cluster of one, or one of several",
		Long: `Run one broker. Without zookeeper.connect it is a cluster of one that keeps its
metadata itself; with it, a member of the cluster that is kept there (see also: cluster).

Settings have Kafka's names; our design switches begin with "lab."; --help-config
lists them all. When it serves, it prints one line with the addresses it really has. The first SIGINT or
SIGTERM shuts it down gracefully, within --grace; a second one, half a second later or more, ends it at once, as
does one before it serves.`,
		Example: `  tidemark broker
  tidemark broker --config server.properties --set listeners=PLAINTEXT://127.0.0.1:0 --set lab.fetch.transfer=copy`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if helpConfig {
				return broker.WriteSettings(cmd.OutOrStdout())
			}
			cfg, err := readConfig(configFile, overrides)
			if err != nil {
				return err
			}
			return runBroker(cmd.Context(), cfg, grace, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar(&configFile, "config", "", "server.properties to read")
	f.StringArrayVar(&overrides, "set", nil, "key=value, over the file's; may be repeated")
	f.BoolVar(&helpConfig, "help-config", false, "list all settings, and do nothing else")
	f.DurationVar(&grace, "grace", 30*time.Second, "how long a graceful shutdown may take")
	return cmd
}

func readConfig(name string, overrides []string) (broker.Config, error) {
	if name == "" {
		return broker.ParseConfig(nil, overrides)
	}
	f, err := os.Open(name)
	if err != nil {
		return broker.Config{}, fmt.Errorf("--config: %w", err)
	}
	defer f.Close()
	return broker.ParseConfig(f, overrides)
}

// runBroker runs until ctx ends, and then shuts down.
func runBroker(ctx context.Context, cfg broker.Config, grace time.Duration, out io.Writer) error {
	live, err := openBroker(ctx, cfg)
	if err != nil {
		return err
	}
	admin := ""
	if live.AdminAddr != "" {
		admin = " admin=" + live.AdminAddr
	}
	fmt.Fprintf(out, "tidemark broker ready listener=%s%s cluster=%s in=%s\n",
		strings.Join(live.Addrs, ","), admin, live.Status().ClusterID, time.Since(processBegan).Round(100*time.Microsecond))
	<-ctx.Done()
	bounded, cancel := context.WithTimeout(context.Background(), grace)
	defer cancel()
	return live.Shutdown(bounded)
}

// openBroker starts a broker, unless ctx ends before it serves. A start may wait for ZooKeeper, or recover much; nobody was
// promised anything yet, so the end of the process cuts it short as a crash would, and the next start begins again.
func openBroker(ctx context.Context, cfg broker.Config) (*server.Live, error) {
	var live *server.Live
	opened := make(chan error, 1)
	go func() {
		var err error
		live, err = server.Open(cfg, slog.New(slog.NewTextHandler(os.Stderr, nil)))
		opened <- err
	}()
	select {
	case err := <-opened:
		return live, err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
