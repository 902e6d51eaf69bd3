package broker_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/tidemark-log/tidemark/broker"
)

// TestConfig parses what stands under each "properties" and prints the settings
// that differ from their defaults, or the error. Arguments of the command are overrides.
func TestConfig(t *testing.T) {
	datadriven.RunTest(t, "testdata/config", func(t *testing.T, d *datadriven.TestData) string {
		var overrides []string
		for _, a := range d.CmdArgs {
			overrides = append(overrides, a.Key+"="+strings.Join(a.Vals, ","))
		}
		cfg, err := broker.ParseConfig(strings.NewReader(d.Input), overrides)
		if err != nil {
			return err.Error() + "\n"
		}
		var out strings.Builder
		defaults := broker.DefaultConfig()
		for _, s := range broker.Settings() {
			if v := s.Value(&cfg); v != s.Value(&defaults) {
				fmt.Fprintf(&out, "%s=%s\n", s.Name, v)
			}
		}
		if out.Len() == 0 {
			return "defaults\n"
		}
		return out.String()
	})
}

// TestEverySettingTakesItsDefault: the documentation's default must be a valid value.
func TestEverySettingTakesItsDefault(t *testing.T) {
	defaults := broker.DefaultConfig()
	for _, s := range broker.Settings() {
		v := s.Value(&defaults)
		if s.Doc == "" || s.Valid() == "" || s.Type() == "" {
			t.Errorf("%s: documentation %q, valid %q, type %q: none may be empty", s.Name, s.Doc, s.Valid(), s.Type())
		}
		if strings.HasSuffix(s.Name, ".minutes") || strings.HasSuffix(s.Name, ".hours") {
			continue // their default is "not given"
		}
		cfg, err := broker.ParseConfig(nil, []string{s.Name + "=" + v})
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		for _, other := range broker.Settings() {
			if got, want := other.Value(&cfg), other.Value(&defaults); got != want {
				t.Errorf("%s=%s changes %s from %s to %s", s.Name, v, other.Name, want, got)
			}
		}
	}
}

// TestDefaultsAreKafkas holds the defaults that Kafka documents.
func TestDefaultsAreKafkas(t *testing.T) {
	defaults := broker.DefaultConfig()
	kafka := map[string]string{
		"log.segment.bytes": "1073741824", "log.roll.ms": "604800000", "log.index.interval.bytes": "4096",
		"log.index.size.max.bytes": "10485760", "log.retention.ms": "604800000", "log.retention.bytes": "-1",
		"log.retention.check.interval.ms": "300000", "log.segment.delete.delay.ms": "60000", "message.max.bytes": "1048588",
		"log.flush.interval.messages": "9223372036854775807", "log.flush.offset.checkpoint.interval.ms": "60000",
		"socket.request.max.bytes": "104857600", "connections.max.idle.ms": "600000", "num.partitions": "1",
		"auto.create.topics.enable": "true", "fetch.max.bytes": "57671680", "log.message.timestamp.type": "CreateTime",
		"log.message.timestamp.after.max.ms": "3600000", "producer.id.expiration.ms": "86400000", "compression.type": "producer",
	}
	for _, s := range broker.Settings() {
		if want, ok := kafka[s.Name]; ok && s.Value(&defaults) != want {
			t.Errorf("%s: default %s, Kafka's is %s", s.Name, s.Value(&defaults), want)
		}
		delete(kafka, s.Name)
	}
	if len(kafka) > 0 {
		t.Errorf("no such settings: %v", kafka)
	}
}

// TestTheDocumentationNamesEverySetting: it is what an unknown setting's error points to.
func TestTheDocumentationNamesEverySetting(t *testing.T) {
	var out strings.Builder
	if err := broker.WriteSettings(&out); err != nil {
		t.Fatal(err)
	}
	for _, s := range broker.Settings() {
		if !strings.Contains("\n"+out.String(), "\n"+s.Name+" = ") || !strings.Contains(out.String(), s.Doc) {
			t.Errorf("%s is not documented", s.Name)
		}
	}
}
