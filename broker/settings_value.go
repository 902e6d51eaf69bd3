package broker

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// value is one field of a Config seen as text.
type value interface {
	set(string) error // says what is valid, and not the key
	String() string
	valid() string
	kind() string // boolean, int, list, string, as in Kafka's documentation
}

type integer interface {
	~int | ~int16 | ~int32 | ~int64
}

type numberValue[T integer] struct {
	field     *T
	unit      string
	low, high int64
}

// number is a whole number between low and high, both valid. unit is "" for a count.
func number[T integer](field *T, unit string, low, high int64) value {
	return numberValue[T]{field, unit, low, high}
}

func (n numberValue[T]) set(s string) error {
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil || v < n.low || v > n.high || int64(T(v)) != v {
		return fmt.Errorf("want %s", n.valid())
	}
	*n.field = T(v)
	return nil
}

func (n numberValue[T]) String() string { return strconv.FormatInt(int64(*n.field), 10) }

func (n numberValue[T]) kind() string {
	if n.high > intMax {
		return "long"
	}
	return "int"
}

func (n numberValue[T]) valid() string {
	what := "a whole number"
	if n.unit != "" {
		what += " of " + n.unit + " without a unit"
	}
	if n.high == noLimit {
		return fmt.Sprintf("%s, at least %d", what, n.low)
	}
	return fmt.Sprintf("%s from %d to %d", what, n.low, n.high)
}

type millisValue struct {
	field *time.Duration
	low   int64
}

// millisMax keeps a time.Duration from overflowing: a century.
const millisMax = 100 * 365 * 24 * 3600 * 1000

// millis is a whole number of milliseconds, kept as a Duration.
func millis(field *time.Duration, low int64) value { return millisValue{field, low} }

func (m millisValue) set(s string) error {
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil || v < m.low {
		return fmt.Errorf("want %s", m.valid())
	}
	*m.field = time.Duration(min(v, millisMax)) * time.Millisecond
	return nil
}

func (m millisValue) String() string { return strconv.FormatInt(m.field.Milliseconds(), 10) }
func (m millisValue) kind() string   { return "long" }
func (m millisValue) valid() string {
	return fmt.Sprintf("a whole number of ms without a unit, at least %d", m.low)
}

// seconds is a whole number of seconds, kept as a Duration.
func seconds(field *time.Duration, low int64) value { return secondsValue{field, low} }

type secondsValue struct {
	field *time.Duration
	low   int64
}

func (s secondsValue) set(text string) error {
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil || v < s.low {
		return fmt.Errorf("want %s", s.valid())
	}
	*s.field = time.Duration(min(v, millisMax/1000)) * time.Second
	return nil
}

func (s secondsValue) String() string { return strconv.FormatInt(int64(s.field.Seconds()), 10) }
func (s secondsValue) kind() string   { return "long" }
func (s secondsValue) valid() string {
	return fmt.Sprintf("a whole number of seconds without a unit, at least %d", s.low)
}

type boolValue struct{ field *bool }

func boolean(field *bool) value { return boolValue{field} }

func (b boolValue) set(s string) error {
	switch strings.ToLower(s) {
	case "true":
		*b.field = true
	case "false":
		*b.field = false
	default:
		return fmt.Errorf("want %s", b.valid())
	}
	return nil
}

func (b boolValue) String() string { return strconv.FormatBool(*b.field) }
func (b boolValue) kind() string   { return "boolean" }
func (b boolValue) valid() string  { return "true or false" }

// choiceValue is one of some words; get and put reach the field.
type choiceValue struct {
	words []string
	get   func() int
	put   func(int)
}

// choice is one of some words, kept as itself.
func choice[T ~string](field *T, words ...T) value {
	c := choiceValue{put: func(i int) { *field = words[i] }}
	for _, w := range words {
		c.words = append(c.words, string(w))
	}
	c.get = func() int {
		for i, w := range words {
			if w == *field {
				return i
			}
		}
		return 0
	}
	return c
}

// toggle is a bool with words of its own.
func toggle(field *bool, off, on string) value {
	return choiceValue{
		words: []string{off, on},
		get: func() int {
			if *field {
				return 1
			}
			return 0
		},
		put: func(i int) { *field = i == 1 },
	}
}

// ordinal is one of some words, kept as its place among them.
func ordinal[T integer](field *T, words ...string) value {
	return choiceValue{words, func() int { return int(*field) }, func(i int) { *field = T(i) }}
}

// fixed is a setting with one valid value.
func fixed(word string) value {
	return choiceValue{[]string{word}, func() int { return 0 }, func(int) {}}
}

func (c choiceValue) set(s string) error {
	for i, w := range c.words {
		if w == s {
			c.put(i)
			return nil
		}
	}
	return fmt.Errorf("want %s", c.valid())
}

func (c choiceValue) String() string { return c.words[c.get()] }
func (c choiceValue) kind() string   { return "string" }

func (c choiceValue) valid() string {
	if n := len(c.words); n > 1 {
		return strings.Join(c.words[:n-1], ", ") + " or " + c.words[n-1]
	}
	return c.words[0]
}

type textValue struct{ field *string }

func text(field *string) value { return textValue{field} }

func (t textValue) set(s string) error { *t.field = s; return nil }
func (t textValue) String() string     { return *t.field }
func (t textValue) kind() string       { return "string" }
func (t textValue) valid() string      { return "a text" }

type listValue struct{ field *[]string }

// list is comma-separated; it never shares its array with another Config.
func list(field *[]string) value { return listValue{field} }

func (l listValue) set(s string) error {
	var items []string
	for item := range strings.SplitSeq(s, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	*l.field = items
	return nil
}

func (l listValue) String() string { return strings.Join(*l.field, ",") }
func (l listValue) kind() string   { return "list" }
func (l listValue) valid() string  { return "a list of texts, comma-separated" }
