// Package cli is what tidemark's client commands do: topics, produce,
// consume, over franz-go. It works with any Kafka broker.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Target says which cluster to talk to, and for how long to try.
type Target struct {
	Bootstrap []string      // host:port
	Timeout   time.Duration // of one administrative request, and of reaching the cluster
}

// connect makes a client and checks that the cluster answers.
func (t Target) connect(ctx context.Context, opts ...kgo.Opt) (*kgo.Client, error) {
	c, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(t.Bootstrap...), kgo.ClientID("tidemark"),
		kgo.DialTimeout(t.Timeout), kgo.RetryTimeout(t.Timeout),
	}, opts...)...)
	if err != nil {
		return nil, err
	}
	ping, cancel := context.WithTimeout(ctx, t.Timeout)
	defer cancel()
	if err := c.Ping(ping); err != nil {
		c.Close()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("no broker answers at %s (--bootstrap): %w", strings.Join(t.Bootstrap, ","), err)
	}
	return c, nil
}

// admin runs f with an administrative client, within Timeout.
func (t Target) admin(ctx context.Context, f func(context.Context, *kadm.Client) error) error {
	c, err := t.connect(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, t.Timeout)
	defer cancel()
	return f(ctx, kadm.NewClient(c))
}

// explain joins a broker's error and its message into one line.
func explain(what string, err error, message string) error {
	var k *kerr.Error
	switch {
	case err == nil:
		return nil
	case message != "" && errors.As(err, &k):
		return fmt.Errorf("%s: %s: %s", what, k.Message, message)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// table writes rows under a head, in aligned columns.
func table(w io.Writer, head []string, rows [][]string) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{head}, rows...) {
		fmt.Fprintln(tw, strings.Join(row, "\t"))
	}
	return tw.Flush()
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
