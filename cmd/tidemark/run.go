package main

import (
	"github.com/spf13/cobra"
)

func init() { commands = append(commands, runCommand) }

func runCommand() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "run FILE|NAME…",
		Short: "Run experiments of your own, or embedded ones by name",
		Example: `  tidemark run batch-size --quick
  tidemark run batch-size --set acks=all --set record_bytes=1000
  tidemark run my-experiment.toml --out /data/results`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := f.options()
			if err != nil {
				return err
			}
			return runAndTell(cmd.Context(), args, o, false)
		},
	}
	f.add(c)
	c.Flags().StringArrayVar(&f.set, "set", nil, "hold a factor at one level, or set a workload key or broker setting: key=value")
	return c
}
