// Package words puts numbers into sentences, and commands onto a line.
package words

import (
	"fmt"
	"regexp"
	"strings"
)

// Count writes how many there are of a thing, in the form that the number asks
// for: "1 batch", "2 batches", "0 entries". thing is the singular.
func Count[N int | int64](n N, thing string) string {
	if n == 1 {
		return fmt.Sprintf("1 %s", thing)
	}
	last := thing[len(thing)-1]
	switch {
	case last == 'h' || last == 's' || last == 'x':
		thing += "es"
	case last == 'y':
		thing = thing[:len(thing)-1] + "ies"
	default:
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// Command writes a command as a shell reads it: what is more than plain letters is quoted.
func Command(args ...string) string {
	words := make([]string, len(args))
	for i, w := range args {
		if words[i] = w; !plain.MatchString(w) {
			words[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}

var plain = regexp.MustCompile(`^[\w@%+=:,./-]+$`)
