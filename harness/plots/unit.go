package plots

import (
	"math"
	"strconv"
	"strings"
)

// Unit says how to write a quantity.
type Unit struct {
	Symbol string // "B/s", "s", "records/s"; empty for a bare number
	Prefix Prefix
}

// Prefix is the system of multiples that people use with a unit.
type Prefix int

const (
	SI   Prefix = iota // k, M, G and m, µ, n
	IEC                // Ki, Mi, Gi: sizes that are powers of two
	None               // plain numbers, grouped by thousands
)

type multiple struct {
	sign   string
	factor float64
}

var (
	siLarge = []multiple{{"T", 1e12}, {"G", 1e9}, {"M", 1e6}, {"k", 1e3}, {"", 1}}
	siSmall = []multiple{{"m", 1e-3}, {"µ", 1e-6}, {"n", 1e-9}}
	iec     = []multiple{{"Ti", 1 << 40}, {"Gi", 1 << 30}, {"Mi", 1 << 20}, {"Ki", 1 << 10}, {"", 1}}
)

// multiple picks the multiple in which v reads best. Parts of anything but
// seconds have no small prefixes: nobody writes millirecords.
func (u Unit) multiple(v float64) multiple {
	v = math.Abs(v)
	all := siLarge
	switch {
	case u.Prefix == IEC:
		all = iec
	case u.Prefix == None || v == 0:
		return multiple{"", 1}
	case u.Symbol == "s":
		all = append([]multiple{{"", 1}}, siSmall...)
	}
	for _, m := range all {
		if v >= m.factor*0.9995 {
			return m
		}
	}
	if u.Symbol == "s" {
		return all[len(all)-1]
	}
	return multiple{"", 1}
}

// Format writes v with three significant digits: "1.23 GB/s", "45 µs", "64 KiB".
func (u Unit) Format(v float64) string {
	if math.IsNaN(v) {
		return "–"
	}
	m := u.multiple(v)
	return join(digits(v/m.factor), m.sign, u.Symbol)
}

// FormatInterval writes a value with its interval, "1.23 GB/s (1.2–1.26)", and
// without one when there is none. The unit is written once where one prefix fits all three.
func (u Unit) FormatInterval(v, lo, hi float64) string {
	text := u.Format(v)
	if math.IsNaN(v) || math.IsNaN(lo) || math.IsNaN(hi) {
		return text
	}
	m := u.multiple(v)
	if u.multiple(lo) == m && u.multiple(hi) == m || u.Prefix == None {
		return text + "\u00a0(" + digits(lo/m.factor) + "–" + digits(hi/m.factor) + ")"
	}
	return text + "\u00a0(" + u.Format(lo) + "–" + u.Format(hi) + ")"
}

// join puts number and unit together. The prefix of a counted thing belongs to
// the number: "1.2 M records/s".
func join(number, sign, symbol string) string {
	switch {
	case sign == "" && symbol == "":
		return number
	case symbol == "×":
		return number + "×"
	case symbol == "" || len(symbol) <= 3 || strings.HasPrefix(symbol, "B/"):
		return number + "\u00a0" + sign + symbol
	case sign == "":
		return number + "\u00a0" + symbol
	}
	return number + "\u00a0" + sign + "\u00a0" + symbol
}

// digits writes v with at most three significant digits and no needless zeros.
func digits(v float64) string {
	if v == 0 {
		return "0"
	}
	decimals := 2 - int(math.Floor(math.Log10(math.Abs(v))+1e-9))
	decimals = max(0, min(decimals, 6))
	s := strconv.FormatFloat(v, 'f', decimals, 64)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return group(s)
}

// group puts thin spaces between the thousands of long numbers.
func group(s string) string {
	whole, part, point := strings.Cut(s, ".")
	if len(whole) <= 4 {
		return s
	}
	var b strings.Builder
	for i, r := range whole {
		if i > 0 && (len(whole)-i)%3 == 0 {
			b.WriteString("\u2009")
		}
		b.WriteRune(r)
	}
	if point {
		b.WriteString("." + part)
	}
	return b.String()
}
