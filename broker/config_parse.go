package broker

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// configLinesMax and configLineMax bound what ParseConfig reads.
const (
	configLinesMax = 10_000
	configLineMax  = 1 << 20 // bytes
)

// origin says where a setting was given, for error messages: "server.properties:12" or "--set".
type origin struct {
	place string
	text  string // key=value, as given
}

// ParseConfig reads a server.properties and then overrides, each "key=value",
// which win. r may be nil. An error is one line that names place, key, value and
// what is valid.
//
// The format is Java's for properties, as far as brokers use it: '#' and '!'
// begin comments, a key ends at '=', ':' or white space, a backslash at the end
// of a line continues it. A key given twice is an error, since one of the two is not meant.
func ParseConfig(r io.Reader, overrides []string) (Config, error) {
	c := DefaultConfig()
	static := map[string]string{}
	origins := map[string]origin{}
	if r != nil {
		if err := parseFile(&c, r, static, origins); err != nil {
			return Config{}, err
		}
	}
	for _, o := range overrides {
		key, value, ok := strings.Cut(o, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		at := origin{"--set", o}
		if !ok {
			return Config{}, fmt.Errorf("--set %s: want key=value", o)
		}
		if err := setStatic(&c, at, key, value, static); err != nil {
			return Config{}, err
		}
		origins[key] = at
	}
	c.static = static
	c.resolve()
	if keys, err := c.check(); err != nil {
		return Config{}, located(keys, origins, err)
	}
	return c, nil
}

func parseFile(c *Config, r io.Reader, static map[string]string, origins map[string]origin) error {
	name := "server.properties"
	if n, ok := r.(interface{ Name() string }); ok {
		name = n.Name()
	}
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, configLineMax)
	line := 0
	for sc.Scan() {
		line++
		if line > configLinesMax {
			return fmt.Errorf("%s:%d: more than %d lines", name, line, configLinesMax)
		}
		first, text := line, strings.TrimSpace(sc.Text())
		if text == "" || text[0] == '#' || text[0] == '!' {
			continue
		}
		for strings.HasSuffix(text, `\`) && len(text) < configLineMax && sc.Scan() {
			line++
			text = strings.TrimSuffix(text, `\`) + strings.TrimSpace(sc.Text())
		}
		key, value := splitProperty(text)
		at := origin{fmt.Sprintf("%s:%d", name, first), key + "=" + value}
		if earlier, twice := origins[key]; twice {
			return fmt.Errorf("%s: %s is given twice: first at %s", at.place, key, earlier.place)
		}
		if err := setStatic(c, at, key, value, static); err != nil {
			return err
		}
		origins[key] = at
	}
	if err := sc.Err(); err != nil {
		return fmt.Errorf("%s:%d: %w", name, line+1, err)
	}
	return nil
}

// splitProperty cuts a line at the first '=', ':' or white space.
func splitProperty(text string) (key, value string) {
	i := strings.IndexAny(text, "=: \t")
	if i < 0 {
		return text, ""
	}
	key, rest := text[:i], strings.TrimLeft(text[i:], " \t")
	if rest != "" && (rest[0] == '=' || rest[0] == ':') {
		rest = rest[1:]
	}
	return key, strings.TrimSpace(rest)
}

func setStatic(c *Config, at origin, key, value string, static map[string]string) error {
	s := settingByName(key)
	if s == nil {
		return fmt.Errorf("%s: unknown setting %s=%s%s", at.place, key, value, didYouMean(key))
	}
	if err := s.set(c, value); err != nil {
		return fmt.Errorf("%s: %s=%s: %w", at.place, key, value, err)
	}
	static[s.Name] = value
	return nil
}

// located puts the place of the last given of keys before err.
func located(keys []string, origins map[string]origin, err error) error {
	var at *origin
	for _, k := range keys {
		if o, ok := origins[k]; ok {
			at = &o
		}
	}
	if at == nil {
		return err
	}
	if strings.HasPrefix(err.Error(), at.text) {
		return fmt.Errorf("%s: %w", at.place, err)
	}
	return fmt.Errorf("%s: %s: %w", at.place, at.text, err)
}

// didYouMean finds a setting that differs from key in at most two letters.
func didYouMean(key string) string {
	best, bestDistance := "", 3
	for i := range settings {
		if d := editDistance(key, settings[i].Name, bestDistance); d < bestDistance {
			best, bestDistance = settings[i].Name, d
		}
	}
	if best == "" {
		return "; `tidemark broker --help-config` lists the known ones"
	}
	return "; did you mean " + best + "?"
}

// editDistance is Levenshtein's, or limit when it would be that or more.
func editDistance(a, b string, limit int) int {
	if len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			next := min(row[j]+1, row[j-1]+1, diagonal+cost)
			diagonal, row[j] = row[j], next
		}
	}
	return min(row[len(b)], limit)
}

// withDynamic gives c with the broker settings of AlterConfigs over it. It fails
// on the first setting that is unknown, not dynamic or out of range.
func (c Config) withDynamic(dynamic map[string]string) (Config, error) {
	for _, name := range slices.Sorted(maps.Keys(dynamic)) {
		s := settingByName(name)
		switch {
		case s == nil:
			return Config{}, fmt.Errorf("unknown setting %s", name)
		case !s.Dynamic:
			return Config{}, fmt.Errorf("%s can only be changed in server.properties, with a restart", name)
		}
		if err := s.set(&c, dynamic[name]); err != nil {
			return Config{}, fmt.Errorf("%s=%s: %w", name, dynamic[name], err)
		}
	}
	c.dynamic = dynamic
	_, err := c.check()
	return c, err
}

// withTopic gives c with a topic's own settings, by their topic-level names, over it.
func (c Config) withTopic(overrides map[string]string) (Config, error) {
	for _, name := range slices.Sorted(maps.Keys(overrides)) {
		s := settingByTopicName(name)
		if s == nil {
			return Config{}, fmt.Errorf("unknown topic setting %s", name)
		}
		if err := s.set(&c, overrides[name]); err != nil {
			return Config{}, fmt.Errorf("%s=%s: %w", name, overrides[name], err)
		}
	}
	_, err := c.check()
	return c, err
}
