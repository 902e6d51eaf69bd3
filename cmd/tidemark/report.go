package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/tidemark-log/tidemark/harness"
	"github.com/tidemark-log/tidemark/harness/report"
	"github.com/tidemark-log/tidemark/harness/result"
)

func init() { commands = append(commands, reportCommand) }

func reportCommand() *cobra.Command {
	var paper string
	c := &cobra.Command{
		Use:   "report RUN…",
		Short: "Make figures, summary and report again from a run's samples",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, dirs []string) error {
			for _, dir := range dirs {
				summary, err := report.Write(dir)
				if err != nil {
					return err
				}
				harness.Tell(os.Stderr, harness.Outcome{Dir: dir, Summary: summary})
				fmt.Println(filepath.Join(dir, result.PageFile))
			}
			if len(dirs) > 1 {
				root := filepath.Dir(filepath.Dir(filepath.Clean(dirs[0])))
				page, err := report.Overview(root, dirs)
				if err != nil {
					return err
				}
				fmt.Println(page)
			}
			if paper != "" {
				return report.WritePaper(paper, filepath.Dir(filepath.Dir(filepath.Clean(dirs[0]))))
			}
			return nil
		},
	}
	c.Flags().StringVar(&paper, "paper", "", "also write the table of claims into this file")
	return c
}
