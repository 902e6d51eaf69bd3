package experiments

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Setting is one key at one value.
type Setting struct{ Key, Value string }

func (s Setting) String() string { return s.Key + "=" + s.Value }

// Test is a verdict's condition on a ratio of two groups of cells, or on every sample of one group.
type Test struct {
	Every                  bool // on every sample; there are no Numerator and Denominator then
	Metric                 string
	Numerator, Denominator []Setting // what tells the groups apart
	Where                  []Setting // what both have
	Op                     string    // <, <=, >, >=
	Bound                  float64
}

// ParseTest reads
//
//	ratio(p99-sec, acks=all / acks=1) < 2
//	ratio(bytes/s, transfer=sendfile, depth=2 / transfer=copy, depth=1 where chunk=1MiB) >= 1.2
//	every(lost-acked-records where acks=all) <= 0
//
// every is for what must never be: one sample that breaks it refutes it. It is no
// place for times and rates, which depend on the machine, unless as a share of what bounds them.
//
// Factors that the test does not name are averaged over: a repeat's ratio is the
// geometric mean over their combinations that both groups have.
func ParseTest(text string) (Test, error) {
	var t Test
	if rest, ok := strings.CutPrefix(strings.TrimSpace(text), "every("); ok {
		return parseEvery(text, rest)
	}
	rest, ok := strings.CutPrefix(strings.TrimSpace(text), "ratio(")
	if !ok {
		return t, testError(text, "must begin with ratio( or every(")
	}
	inside, comparison, ok := strings.Cut(rest, ")")
	if !ok {
		return t, testError(text, "has no closing )")
	}
	metric, groups, ok := strings.Cut(inside, ",")
	if t.Metric = strings.TrimSpace(metric); !ok || t.Metric == "" || strings.ContainsAny(t.Metric, "= ") {
		return t, testError(text, "needs a metric, a comma and two groups of cells")
	}
	groups, where, _ := strings.Cut(groups, " where ")
	left, right, ok := strings.Cut(groups, " / ")
	if !ok || strings.Contains(right, " / ") {
		return t, testError(text, "needs two groups of cells with \" / \" between them")
	}
	var err error
	for _, part := range []struct {
		into *[]Setting
		text string
		name string
	}{{&t.Numerator, left, "left group"}, {&t.Denominator, right, "right group"}, {&t.Where, where, "where"}} {
		if *part.into, err = parseSettings(part.text); err != nil {
			return t, testError(text, part.name+": "+err.Error())
		}
	}
	if len(t.Numerator) == 0 || len(t.Denominator) == 0 {
		return t, testError(text, "needs key=value on both sides of the /")
	}
	if !sameKeys(t.Numerator, t.Denominator) {
		return t, testError(text, "must name the same factors on both sides of the /")
	}
	if !slices.ContainsFunc(t.Numerator, func(s Setting) bool { return !slices.Contains(t.Denominator, s) }) {
		return t, testError(text, "has the same group on both sides of the /")
	}
	for _, w := range t.Where {
		if slices.ContainsFunc(t.Numerator, func(s Setting) bool { return s.Key == w.Key }) {
			return t, testError(text, "names "+w.Key+" in where and beside the /")
		}
	}
	if err := t.parseComparison(comparison); err != nil {
		return t, testError(text, err.Error())
	}
	return t, nil
}

func parseEvery(text, rest string) (Test, error) {
	t := Test{Every: true}
	inside, comparison, ok := strings.Cut(rest, ")")
	if !ok {
		return t, testError(text, "has no closing )")
	}
	metric, where, _ := strings.Cut(inside, " where ")
	if t.Metric = strings.TrimSpace(metric); t.Metric == "" || strings.ContainsAny(t.Metric, "=, ") {
		return t, testError(text, "needs a metric")
	}
	var err error
	if t.Where, err = parseSettings(where); err != nil {
		return t, testError(text, "where: "+err.Error())
	}
	if err := t.parseComparison(comparison); err != nil {
		return t, testError(text, err.Error())
	}
	return t, nil
}

func (t *Test) parseComparison(text string) error {
	text = strings.TrimSpace(text)
	for _, op := range []string{"<=", ">=", "<", ">"} { // the longer first
		number, ok := strings.CutPrefix(text, op)
		if !ok {
			continue
		}
		bound, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if zero := t.Every && bound == 0; err != nil || !(bound > 0 || zero) || bound > 1e12 {
			return fmt.Errorf("compares with %q: must be a positive number", strings.TrimSpace(number))
		}
		t.Op, t.Bound = op, bound
		return nil
	}
	return fmt.Errorf("needs <, <=, > or >= and a number after the )")
}

func parseSettings(text string) ([]Setting, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var all []Setting
	for part := range strings.SplitSeq(text, ",") {
		key, value, ok := strings.Cut(part, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if !ok || key == "" || value == "" || strings.ContainsAny(key+value, "= ()<>") {
			return nil, fmt.Errorf("%q is not key=value", strings.TrimSpace(part))
		}
		for _, earlier := range all {
			if earlier.Key == key {
				return nil, fmt.Errorf("%s is there twice", key)
			}
		}
		all = append(all, Setting{key, value})
	}
	return all, nil
}

func sameKeys(a, b []Setting) bool {
	for _, s := range a {
		if !slices.ContainsFunc(b, func(o Setting) bool { return o.Key == s.Key }) {
			return false
		}
	}
	return len(a) == len(b)
}

func testError(text, what string) error { return fmt.Errorf("test %q %s", text, what) }

// String writes the test as ParseTest reads it.
func (t Test) String() string {
	var b strings.Builder
	if t.Every {
		fmt.Fprintf(&b, "every(%s", t.Metric)
	} else {
		fmt.Fprintf(&b, "ratio(%s, %s / %s", t.Metric, JoinSettings(t.Numerator, ", "), JoinSettings(t.Denominator, ", "))
	}
	if len(t.Where) > 0 {
		fmt.Fprintf(&b, " where %s", JoinSettings(t.Where, ", "))
	}
	fmt.Fprintf(&b, ") %s %s", t.Op, strconv.FormatFloat(t.Bound, 'g', -1, 64))
	return b.String()
}

// JoinSettings writes settings with sep between them.
func JoinSettings(all []Setting, sep string) string {
	parts := make([]string, len(all))
	for i, s := range all {
		parts[i] = s.String()
	}
	return strings.Join(parts, sep)
}
