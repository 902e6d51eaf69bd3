package limits

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// WriteTable prints rows as a table; in colour when the reader has a terminal.
func WriteTable(out io.Writer, rows []Row, colour bool) error {
	w := &bytes.Buffer{}
	paint := func(code, s string) string {
		if !colour {
			return s
		}
		return "\x1b[" + code + "m" + s + "\x1b[0m"
	}
	width := 0
	for _, r := range rows {
		width = max(width, utf8.RuneCountInString(r.Name))
	}
	fmt.Fprintf(w, "%s\n", paint("1", fmt.Sprintf("%s  %12s  %12s  %12s", pad("limit", width), "min", "median", "max")))
	for _, r := range rows {
		note := r.Note
		if len(r.Values) == 0 {
			fmt.Fprintf(w, "%s  %s\n", pad(r.Name, width), paint("33", "not possible here: "+note))
			continue
		}
		fmt.Fprintf(w, "%s  %12s  %s  %12s  %s\n", pad(r.Name, width), Rate(r.Min(), r.Unit),
			paint("32;1", fmt.Sprintf("%12s", Rate(r.Median(), r.Unit))), Rate(r.Max(), r.Unit), paint("2", note))
	}
	_, err := w.WriteTo(out)
	return err
}

func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(s)))
}

// Rate writes a number of bytes or anything else per second in three digits.
func Rate(v float64, unit string) string {
	unit = strings.TrimSuffix(unit, "/s")
	if unit == "bytes" {
		unit = "B"
	} else {
		unit = " " + unit
	}
	prefixes := []string{"", "k", "M", "G", "T"}
	i := 0
	for v >= 999.5 && i < len(prefixes)-1 {
		v, i = v/1000, i+1
	}
	number := fmt.Sprintf("%.3g", v)
	if unit == "B" {
		return number + " " + prefixes[i] + "B/s"
	}
	return number + prefixes[i] + unit + "/s"
}
