package logdump

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tidemark-log/tidemark/internal/words"
)

// printer shows what a run sees, one thing at a time, in order.
type printer interface {
	print(v any)
	flush() error
}

func newPrinter(w io.Writer, o Options, quiet bool) printer {
	b := bufio.NewWriterSize(w, 64<<10)
	var p printer = &textPrinter{w: b, color: o.Color}
	if o.JSON {
		p = &jsonPrinter{w: b}
	}
	if quiet {
		p = onlyProblems{p}
	}
	return p
}

// onlyProblems leaves out what is well.
type onlyProblems struct{ printer }

func (p onlyProblems) print(v any) {
	switch v.(type) {
	case Problem, Summary:
		p.printer.print(v)
	}
}

// jsonPrinter writes one object a line; "type" says of what.
type jsonPrinter struct {
	w   *bufio.Writer
	err error
}

func (p *jsonPrinter) print(v any) {
	if p.err != nil {
		return
	}
	b, err := json.Marshal(v)
	if err != nil {
		p.err = err
		return
	}
	kind := snake(reflect.TypeOf(v).Name())
	fmt.Fprintf(p.w, `{"type":%q`, kind)
	if len(b) > 2 {
		p.w.WriteByte(',')
	}
	p.w.Write(b[1:])
	p.w.WriteByte('\n')
}

func (p *jsonPrinter) flush() error {
	if p.err != nil {
		return p.err
	}
	return p.w.Flush()
}

// snake makes time_index_entry of TimeIndexEntry.
func snake(name string) string {
	var b strings.Builder
	for i, r := range name {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// textPrinter writes aligned columns for a person.
type textPrinter struct {
	w       *bufio.Writer
	color   bool
	columns string // the heading of the rows that come next, not yet printed
	began   bool
}

const (
	bold  = "1"
	dim   = "2"
	red   = "31"
	green = "32"
)

func (p *textPrinter) paint(code, s string) string {
	if !p.color {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// title begins a file: its name and what such a file is for.
func (p *textPrinter) title(file, what, columns string) {
	if p.began {
		p.w.WriteByte('\n')
	}
	p.began = true
	fmt.Fprintf(p.w, "%s  %s\n", p.paint(bold, file), what)
	p.columns = columns
}

func (p *textPrinter) row(format string, args ...any) {
	if p.columns != "" {
		fmt.Fprintln(p.w, p.paint(dim, p.columns))
		p.columns = ""
	}
	fmt.Fprintf(p.w, format+"\n", args...)
}

func (p *textPrinter) flush() error { return p.w.Flush() }

const (
	batchFormat    = "%12s %25s %8s %10s %-7s %-24s %6s %20s"
	indexFormat    = "%15s %12s"
	timeFormat     = "%-24s %15s"
	producerFormat = "%20s %6s %14s %15s %-24s %s"
	offsetFormat   = "%15s  %s"
)

func (p *textPrinter) print(v any) {
	switch v := v.(type) {
	case Segment:
		p.title(v.File, fmt.Sprintf("segment from offset %d, %s", v.BaseOffset, size(v.Bytes)),
			fmt.Sprintf(batchFormat, "byte", "offsets", "records", "bytes", "codec", "latest record", "epoch", "producer"))
	case Batch:
		p.batch(v)
	case Record:
		p.row("%12s %25d %s  %s = %s%s", "", v.Offset, stamp(v.Timestamp), text(v.Key), text(v.Value), headers(v.Headers))
	case Tail:
		p.row("%12d %s", v.Pos, p.paint(dim, fmt.Sprintf("%s of zeros: preallocated, not yet written", size(v.Bytes))))
	case IndexFile:
		what, columns := "offset index: the batch that ends with the offset stands at the byte", fmt.Sprintf(indexFormat, "offset", "byte")
		if v.Time {
			what, columns = "time index: no record up to the offset is later than the time", fmt.Sprintf(timeFormat, "time", "offset")
		}
		zeros := ""
		if v.Zeros > 0 {
			zeros = fmt.Sprintf(", and %d of zeros: preallocated", v.Zeros)
		}
		p.title(v.File, fmt.Sprintf("%s; %s%s", what, words.Count(v.Entries, "entry"), zeros), columns)
	case IndexEntry:
		p.row("%s", p.mark(v.Wrong, fmt.Sprintf(indexFormat, fmt.Sprint(v.Offset), fmt.Sprint(v.Pos))))
	case TimeIndexEntry:
		p.row("%s", p.mark(v.Wrong, fmt.Sprintf(timeFormat, stamp(v.Timestamp), fmt.Sprint(v.Offset))))
	case Snapshot:
		p.title(v.File, fmt.Sprintf("state of %s before offset %d", words.Count(v.Producers, "idempotent producer"), v.Offset),
			fmt.Sprintf(producerFormat, "producer", "epoch", "last sequence", "last offset", "last write", "batches kept (sequences→last offset)"))
	case Producer:
		p.producer(v)
	case Checkpoint:
		p.title(v.File, fmt.Sprintf("checkpoint of %s: %s", words.Count(v.Entries, "entry"), checkpointText(v.File)), "")
	case PartitionOffset:
		p.row(offsetFormat, fmt.Sprint(v.Offset), fmt.Sprintf("%s-%d", v.Topic, v.Partition))
	case Epoch:
		p.row(offsetFormat, fmt.Sprint(v.Start), fmt.Sprintf("leader epoch %d begins", v.Epoch))
	case Properties:
		p.title(v.File, "who this directory belongs to", "")
	case Property:
		p.row("  %s = %s", v.Key, v.Value)
	case Problem:
		p.problem(v)
	case Summary:
		p.summary(v)
	case Difference:
		fmt.Fprintf(p.w, "%s %s\n", p.paint(red, "difference:"), v)
	case Comparison:
		p.comparison(v)
	default:
		panic(fmt.Sprintf("BUG: logdump: no text for %T", v))
	}
}

func (p *textPrinter) mark(wrong bool, line string) string {
	if !wrong {
		return line
	}
	return p.paint(red, line+"  wrong")
}

func (p *textPrinter) batch(b Batch) {
	producer := "-"
	if b.ProducerID >= 0 {
		producer = fmt.Sprintf("%d/%d seq %d", b.ProducerID, b.ProducerEpoch, b.BaseSequence)
	}
	var notes []string
	for _, n := range []struct {
		is   bool
		text string
	}{
		{b.Transactional, "transactional"}, {b.Control, "control"}, {b.TimestampType == "LogAppendTime", "append time"},
		{int(b.LastOffset-b.BaseOffset)+1 == b.Bytes, "byte offsets"}, {b.Damaged, "damaged"},
	} {
		if n.is {
			notes = append(notes, n.text)
		}
	}
	line := fmt.Sprintf(batchFormat, fmt.Sprint(b.Pos), fmt.Sprintf("%d..%d", b.BaseOffset, b.LastOffset), fmt.Sprint(b.Records), fmt.Sprint(b.Bytes),
		b.Codec, stamp(b.MaxTimestamp), fmt.Sprint(b.LeaderEpoch), producer)
	if len(notes) > 0 {
		line += "  " + strings.Join(notes, ", ")
	}
	if b.Damaged {
		line = p.paint(red, line)
	}
	p.row("%s", line)
}

func (p *textPrinter) producer(v Producer) {
	var kept []string
	for _, b := range v.Batches {
		kept = append(kept, fmt.Sprintf("%d..%d→%d", b.FirstSequence, b.LastSequence, b.LastOffset))
	}
	p.row(producerFormat, fmt.Sprint(v.ProducerID), fmt.Sprint(v.Epoch), fmt.Sprint(v.LastSequence), fmt.Sprint(v.LastOffset), stamp(v.Timestamp), strings.Join(kept, " "))
}

func (p *textPrinter) problem(v Problem) {
	at := fmt.Sprintf("%s at byte %d", v.File, v.Pos)
	if v.Offset >= 0 {
		at += fmt.Sprintf(", offset %d", v.Offset)
	}
	fmt.Fprintf(p.w, "%s %s: %s\n", p.paint(red, "problem:"), at, v.What)
}

func (p *textPrinter) summary(s Summary) {
	if p.began {
		p.w.WriteByte('\n')
	}
	verdict := p.paint(green, "no problems")
	if s.Problems > 0 {
		verdict = p.paint(red, words.Count(s.Problems, "problem"))
	}
	if s.Partitions > 0 {
		fmt.Fprintf(p.w, "%s, ", words.Count(s.Partitions, "partition"))
	}
	fmt.Fprintf(p.w, "%s, %s, %s, %s: %s\n", words.Count(s.Segments, "segment"),
		words.Count(s.Batches, "batch"), words.Count(s.Records, "record"), size(s.Bytes), verdict)
}

func (p *textPrinter) comparison(c Comparison) {
	verdict := p.paint(green, "no differences")
	if c.Count > 0 {
		verdict = p.paint(red, words.Count(c.Count, "difference"))
	}
	if more := c.Count - len(c.Differences); more > 0 {
		verdict += fmt.Sprintf(", of which the last %d are not shown", more)
	}
	fmt.Fprintf(p.w, "%s, %s in each, %s, from offset %d to %d: %s\n", words.Count(c.Copies, "copy"), words.Count(c.Batches, "batch"), size(c.Bytes), c.From, c.To, verdict)
}

func checkpointText(file string) string {
	switch file[strings.LastIndexByte(file, '/')+1:] {
	case "recovery-point-offset-checkpoint":
		return "everything below the offset is on disk; recovery begins there"
	case "replication-offset-checkpoint":
		return "the high watermark: everything below the offset is committed"
	case "log-start-offset-checkpoint":
		return "the log start offset: everything below was deleted"
	}
	return "which leader wrote from which offset on"
}

func stamp(ms int64) string {
	if ms < 0 {
		return "-"
	}
	return time.UnixMilli(ms).UTC().Format("2006-01-02T15:04:05.000Z")
}

func size(n int64) string {
	switch {
	case n < 10<<10:
		return fmt.Sprintf("%d B", n)
	case n < 10<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n < 10<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}

// textMax is how much of a key or value a line shows, in bytes.
const textMax = 80

// text shows a key or value that may hold anything.
func text(b []byte) string {
	if b == nil {
		return "null"
	}
	more := ""
	if len(b) > textMax {
		more = fmt.Sprintf("… (%d bytes)", len(b))
		b = b[:textMax]
		for len(b) > textMax-utf8.UTFMax && !utf8.Valid(b) { // do not cut a character
			b = b[:len(b)-1]
		}
	}
	if !utf8.Valid(b) {
		return fmt.Sprintf("0x%x%s", b, more)
	}
	return fmt.Sprintf("%q%s", b, more)
}

func headers(hs []RecordHeader) string {
	var b strings.Builder
	for _, h := range hs {
		fmt.Fprintf(&b, "  %s: %s", text([]byte(h.Key)), text(h.Value))
	}
	return b.String()
}
