// Package words puts numbers into sentences.
package words

import "fmt"

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
