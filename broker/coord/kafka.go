package coord

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// The JSON that Kafka keeps in its nodes, with its versions and odd spellings.
// Encoding gives the same bytes for the same value; decoding accepts fields that
// it does not know, as Kafka does, so that a newer one's nodes can be read.

// UUID is a topic id or cluster id.
type UUID [16]byte

// String is Kafka's form: base64url without padding.
func (u UUID) String() string { return base64.RawURLEncoding.EncodeToString(u[:]) }

// ParseUUID reads String's form.
func ParseUUID(s string) (UUID, error) {
	var u UUID
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) != len(u) {
		return u, fmt.Errorf("%q is no id of 22 base64 characters", s)
	}
	copy(u[:], b)
	return u, nil
}

// EncodeClusterID is the content of ClusterIDPath.
func EncodeClusterID(id string) []byte {
	return mustJSON(struct {
		Version string `json:"version"`
		ID      string `json:"id"`
	}{"1", id})
}

// DecodeClusterID reads it.
func DecodeClusterID(b []byte) (string, error) {
	var v struct {
		ID string `json:"id"`
	}
	if err := decodeJSON(ClusterIDPath, b, &v); err != nil {
		return "", err
	}
	if v.ID == "" {
		return "", fmt.Errorf("coord: %s has no id", ClusterIDPath)
	}
	return v.ID, nil
}

// BrokerRegistration is the content of BrokerIDPath.
type BrokerRegistration struct {
	Host      string // advertised
	Port      int32
	Timestamp int64 // ms, of the registration
	Rack      string
	// BrokerEpoch is the version of BrokerEpochPath that this registration made; -1 in one of Kafka's own.
	BrokerEpoch int64
	// CleanEpoch is the broker epoch that the mark on its disk proves was shut down cleanly; -1: none (KIP-966).
	CleanEpoch int64
	// CleanRun: so many epochs before CleanEpoch lost nothing either.
	CleanRun int64
}

type brokerJSON struct {
	Protocols map[string]string `json:"listener_security_protocol_map"`
	Endpoints []string          `json:"endpoints"`
	JMXPort   int               `json:"jmx_port"`
	Features  struct{}          `json:"features"`
	Host      string            `json:"host"`
	Timestamp string            `json:"timestamp"`
	Port      int32             `json:"port"`
	Version   int               `json:"version"`
	Rack      string            `json:"rack,omitempty"`
	// Ours.
	BrokerEpoch *int64 `json:"broker_epoch"`
	CleanEpoch  *int64 `json:"clean_epoch"`
	CleanRun    int64  `json:"clean_run"`
}

// Encode gives the JSON, version 5, of one PLAINTEXT listener.
func (r BrokerRegistration) Encode() []byte {
	host := r.Host
	if strings.Contains(host, ":") { // an IPv6 address
		host = "[" + host + "]"
	}
	return mustJSON(brokerJSON{
		Protocols:   map[string]string{"PLAINTEXT": "PLAINTEXT"},
		Endpoints:   []string{"PLAINTEXT://" + host + ":" + strconv.Itoa(int(r.Port))},
		JMXPort:     -1,
		Host:        r.Host,
		Timestamp:   strconv.FormatInt(r.Timestamp, 10),
		Port:        r.Port,
		Version:     5,
		Rack:        r.Rack,
		BrokerEpoch: &r.BrokerEpoch,
		CleanEpoch:  &r.CleanEpoch,
		CleanRun:    r.CleanRun,
	})
}

// DecodeBrokerRegistration reads it.
func DecodeBrokerRegistration(b []byte) (BrokerRegistration, error) {
	var v brokerJSON
	if err := decodeJSON(BrokerIDsPath, b, &v); err != nil {
		return BrokerRegistration{}, err
	}
	ms, err := strconv.ParseInt(v.Timestamp, 10, 64)
	if err != nil {
		return BrokerRegistration{}, fmt.Errorf("coord: broker registration: timestamp %q", v.Timestamp)
	}
	if v.Port < 0 || v.Port > 65535 {
		return BrokerRegistration{}, fmt.Errorf("coord: broker registration: port %d", v.Port)
	}
	r := BrokerRegistration{Host: v.Host, Port: v.Port, Timestamp: ms, Rack: v.Rack, BrokerEpoch: -1, CleanEpoch: -1}
	if v.BrokerEpoch != nil {
		r.BrokerEpoch = *v.BrokerEpoch
	}
	if v.CleanEpoch != nil {
		r.CleanEpoch, r.CleanRun = *v.CleanEpoch, max(v.CleanRun, 0)
	}
	return r, nil
}

type configJSON struct {
	Version int               `json:"version"`
	Config  map[string]string `json:"config"`
}

// EncodeConfig is the content of TopicConfigPath and BrokerConfigPath.
func EncodeConfig(config map[string]string) []byte {
	if config == nil {
		config = map[string]string{}
	}
	return mustJSON(configJSON{1, config})
}

// DecodeConfig reads it.
func DecodeConfig(b []byte) (map[string]string, error) {
	v := configJSON{}
	if err := decodeJSON("config", b, &v); err != nil {
		return nil, err
	}
	if v.Config == nil {
		v.Config = map[string]string{}
	}
	return v.Config, nil
}

// ProducerIDBlock is the content of LatestProducerIDBlockPath: the ids that one
// broker may hand out. A new block is claimed by a conditional write before any
// of it is used, so an id is never given twice.
type ProducerIDBlock struct {
	Broker     int32
	Start, End int64 // both inclusive
}

// ProducerIDBlockSize is how many ids a block has.
const ProducerIDBlockSize = 1000

type producerIDBlockJSON struct {
	Version int    `json:"version"`
	Broker  int32  `json:"broker"`
	Start   string `json:"block_start"`
	End     string `json:"block_end"`
}

// Encode gives the JSON, version 1.
func (p ProducerIDBlock) Encode() []byte {
	return mustJSON(producerIDBlockJSON{1, p.Broker, strconv.FormatInt(p.Start, 10), strconv.FormatInt(p.End, 10)})
}

// DecodeProducerIDBlock reads it.
func DecodeProducerIDBlock(b []byte) (ProducerIDBlock, error) {
	var v producerIDBlockJSON
	if err := decodeJSON(LatestProducerIDBlockPath, b, &v); err != nil {
		return ProducerIDBlock{}, err
	}
	start, err1 := strconv.ParseInt(v.Start, 10, 64)
	end, err2 := strconv.ParseInt(v.End, 10, 64)
	if err1 != nil || err2 != nil || start < 0 || end < start {
		return ProducerIDBlock{}, fmt.Errorf("coord: %s: block %q to %q", LatestProducerIDBlockPath, v.Start, v.End)
	}
	return ProducerIDBlock{v.Broker, start, end}, nil
}

// mustJSON encodes without Go's escaping of <, > and &, which Kafka does not do.
func mustJSON(v any) []byte {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(fmt.Sprintf("BUG: coord: encode %T: %v", v, err))
	}
	return []byte(strings.TrimSuffix(b.String(), "\n"))
}

// decodeJSON wants an object: what is missing in it is for the caller to judge.
func decodeJSON(what string, b []byte, v any) error {
	if object := bytes.TrimLeft(b, " \t\r\n"); len(object) == 0 || object[0] != '{' {
		return fmt.Errorf("coord: %s holds no JSON object: %.40q", what, b)
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("coord: %s holds no valid JSON: %w", what, err)
	}
	return nil
}
