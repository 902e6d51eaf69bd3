package main

import (
	"encoding/json"
	"os"

	"github.com/spf13/cobra"

	"github.com/tidemark-log/tidemark/harness/report"
)

func init() { commands = append(commands, compareCommand) }

func compareCommand() *cobra.Command {
	var paired, asJSON bool
	c := &cobra.Command{
		Use:   "compare RUN RUN",
		Short: "Hold two runs side by side: ratios with intervals, and what else differs between them",
		Args:  cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, dirs []string) error {
			c, err := report.Compare(dirs[0], dirs[1], paired)
			if err != nil {
				return err
			}
			if asJSON {
				e := json.NewEncoder(os.Stdout)
				e.SetIndent("", "  ")
				return e.Encode(c)
			}
			c.Print(os.Stdout)
			return nil
		},
	}
	c.Flags().BoolVar(&paired, "paired", false, "pair by repeat: right only if the repeats of the two runs alternated")
	c.Flags().BoolVar(&asJSON, "json", false, "write JSON")
	return c
}
