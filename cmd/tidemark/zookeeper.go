package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tidemark-log/tidemark/broker/coord/zkserver"
	"github.com/tidemark-log/tidemark/storage/vfs"
)

func init() { commands = append(commands, zookeeperCommand) }

func zookeeperCommand() *cobra.Command {
	var listen, dir string
	cmd := &cobra.Command{
		Use:   "zookeeper",
		Short: "Run the embedded ZooKeeper server",
		Long: `Run the embedded server that brokers coordinate through. It speaks ZooKeeper's
protocol with the semantics of a lone 3.8 server; zkCli.sh and other stock clients work.

Without --dir everything is in memory and ends with the process. When it serves, it
prints one line with the address it really has. SIGINT or SIGTERM ends it.`,
		Example: `  tidemark zookeeper
  tidemark zookeeper --listen 127.0.0.1:0 --dir /var/lib/tidemark-zookeeper`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg := zkserver.Config{Log: slog.New(slog.NewTextHandler(os.Stderr, nil))}
			if dir != "" {
				cfg.Disk, cfg.Dir = vfs.NewReal("", nil), dir
			}
			return runZooKeeper(cmd.Context(), listen, cfg, cmd.OutOrStdout())
		},
	}
	f := cmd.Flags()
	f.StringVar(&listen, "listen", "127.0.0.1:2181", "address to listen on; port 0 picks a free one")
	f.StringVar(&dir, "dir", "", "directory to keep everything in; without it, in memory")
	return cmd
}

// runZooKeeper serves until ctx ends, or the disk fails.
func runZooKeeper(ctx context.Context, listen string, cfg zkserver.Config, out io.Writer) error {
	s, err := zkserver.Listen(listen, cfg)
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("--listen %s: the port is in use by another process; stop it, or choose another port (0 takes a free one)", listen)
	}
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "tidemark zookeeper ready listener=%s\n", s.Addr())
	failed := make(chan struct{})
	go func() {
		_ = s.Wait() // Close says it, too
		close(failed)
	}()
	select {
	case <-ctx.Done():
	case <-failed:
	}
	return s.Close()
}
