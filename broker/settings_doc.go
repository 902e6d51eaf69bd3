package broker

import (
	"fmt"
	"io"
	"strings"
)

// WriteSettings writes the table of all settings for a person: name, default,
// meaning, what is valid, the topic-level name, and the claim that it serves.
func WriteSettings(w io.Writer) error {
	defaults := DefaultConfig()
	for i := range settings {
		s := &settings[i]
		shown := s.Value(&defaults)
		switch {
		case shown == "":
			shown = "(empty)"
		case strings.HasSuffix(s.Name, ".hours"), strings.HasSuffix(s.Name, ".minutes"):
			shown = "(not given)"
		}
		if _, err := fmt.Fprintf(w, "%s = %s\n    %s\n    %s", s.Name, shown, s.Doc, s.Valid()); err != nil {
			return err
		}
		for _, note := range []struct {
			text string
			show bool
		}{
			{"a topic's own: " + s.Topic, s.Topic != ""},
			{"AlterConfigs may change it", s.Dynamic},
			{"claim " + s.Claim, s.Claim != ""},
		} {
			if !note.show {
				continue
			}
			if _, err := fmt.Fprintf(w, "; %s", note.text); err != nil {
				return err
			}
		}
		if _, err := fmt.Fprint(w, "\n\n"); err != nil {
			return err
		}
	}
	return nil
}
