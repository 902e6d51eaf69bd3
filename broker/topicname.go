package broker

import (
	"fmt"
	"strings"
)

// topicNameMax is Kafka's limit: a directory name with "-" and a partition
// number, and ".…-delete" after it, has to fit into 255 bytes.
const topicNameMax = 249

// checkTopicName says why name cannot be a topic's, or "".
func checkTopicName(name string) string {
	switch {
	case name == "":
		return "a topic name cannot be empty"
	case name == "." || name == "..":
		return `a topic name cannot be "." or ".."`
	case len(name) > topicNameMax:
		return fmt.Sprintf("a topic name has at most %d characters, this one %d", topicNameMax, len(name))
	}
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return fmt.Sprintf("topic name %q: only letters, digits, '.', '_' and '-' are allowed", name)
		}
	}
	return ""
}

// collisionKey is equal for names that Kafka's metrics would confuse: '.' becomes '_' there.
func collisionKey(name string) string { return strings.ReplaceAll(name, ".", "_") }
