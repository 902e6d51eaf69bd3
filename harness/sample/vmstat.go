package sample

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
)

// VMStat reads values of /proc/vmstat by name.
func VMStat(names ...string) ([]int64, error) {
	b, err := os.ReadFile("/proc/vmstat")
	if err != nil {
		return nil, fmt.Errorf("sample: %w", err)
	}
	values, found := make([]int64, len(names)), 0
	for lines := bufio.NewScanner(bytes.NewReader(b)); lines.Scan(); {
		name, value, _ := bytes.Cut(lines.Bytes(), []byte(" "))
		for i, want := range names {
			if string(name) == want {
				values[i], err = strconv.ParseInt(string(value), 10, 64)
				if err != nil {
					return nil, fmt.Errorf("sample: /proc/vmstat: %s: %w", want, err)
				}
				found++
			}
		}
	}
	if found != len(names) {
		return nil, fmt.Errorf("sample: /proc/vmstat has not all of %v", names)
	}
	return values, nil
}
