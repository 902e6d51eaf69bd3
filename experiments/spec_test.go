package experiments

import (
	"os"
	"strings"
	"testing"
)

const minimal = `question = "q"
prediction = "p"
claims = ["C4"]
workload = { kind = "produce" }
vary = { acks = ["0", "1"], batch_records = [1, 100] }
`

func TestAnErrorNamesLineAndKey(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"unknown key at the top":         {minimal + "repeats = 3\n", "x.toml:6: unknown key repeats"},
		"unknown key in an inline table": {minimal + "run = { seed = 1, repeat = 3 }\n", "x.toml:6: unknown key run.repeat"},
		"unknown key in a table array":   {minimal + "[[figures]]\nname = \"a\"\ncolour = 3\n", "x.toml:8: unknown key figures.colour"},
		"wrong type":                     {minimal + "run = { repeats = \"many\" }\n", "x.toml:6: "},
		"not TOML":                       {minimal + "run = {\n= 3", "x.toml:"},
		"no prediction":                  {strings.Replace(minimal, `"p"`, `""`, 1), "x.toml:2: no prediction"},
		"unknown claim":                  {strings.Replace(minimal, "C4", "C99", 1), `x.toml:3: no claim "C99"`},
		"level twice":                    {strings.Replace(minimal, "[1, 100]", "[1, 1]", 1), "x.toml:5: factor batch_records has level 1 twice"},
		"timeline over a factor":         {minimal + "[[figures]]\nname = \"a\"\nkind = \"timeline\"\nx = \"acks\"\n", "x.toml:6: figure a: a timeline's x axis is time"},
		"notes beside bars":              {minimal + "[[figures]]\nname = \"a\"\nkind = \"bars\"\nx = \"acks\"\nnotes = [\"m\"]\n", "x.toml:6: figure a: notes are for kind timeline"},
		"no brokers":                     {minimal + "cluster = { brokers = 0 }\n", "x.toml:6: cluster.brokers = 0"},
		"more replicas than brokers":     {minimal + "cluster = { brokers = 3, replication_factor = 4 }\n", "x.toml:6: cluster.replication_factor = 4: must be from 1 to 3"},
		"more in sync than brokers":      {minimal + "cluster = { min_insync_replicas = 2 }\n", "x.toml:6: cluster.min_insync_replicas = 2: must be from 1 to 1"},
		"unknown key of the cluster":     {minimal + "cluster = { broker = 3 }\n", "x.toml:6: unknown key cluster.broker"},
		"no repeats":                     {minimal + "run = { repeats = 0 }\n", "x.toml:6: run.repeats = 0"},
		"verdict on another claim":       {minimal + "[[verdicts]]\nclaim = \"C5\"\n", "x.toml:6: verdict on \"C5\""},
		"test without ratio":             {minimal + "[[verdicts]]\nclaim = \"C4\"\ntest = \"a < 2\"\n", "x.toml:8: test \"a < 2\" must begin with ratio( or every("},
		"test names no factor":           {minimal + "[[verdicts]]\nclaim = \"C4\"\ntest = \"ratio(m, ack=0 / ack=1) < 2\"\n", "x.toml:8: test names ack, which is no factor; factors are acks, batch_records"},
		"test names no level":            {minimal + "[[verdicts]]\nclaim = \"C4\"\ntest = \"ratio(m, acks=0 / acks=2) < 2\"\n", "x.toml:8: test names acks=2, which is no level of it; levels are 0, 1"},
		"figure over no factor":          {minimal + "[[figures]]\nname = \"a\"\nkind = \"line\"\nx = \"y\"\n", "x.toml:6: figure a: x \"y\" is no factor"},
		"max repeats without width":      {minimal + "run = { repeats = 8, max_repeats = 20 }\n", "x.toml:6: run.max_repeats needs run.width"},
		"test of a group by itself":      {minimal + "[[verdicts]]\nclaim = \"C4\"\ntest = \"ratio(m, acks=0 / acks=0) < 2\"\n", "x.toml:8: test \"ratio(m, acks=0 / acks=0) < 2\" has the same group on both sides of the /"},
		"test with a factor in where":    {minimal + "[[verdicts]]\nclaim = \"C4\"\ntest = \"ratio(m, acks=0 / acks=1 where acks=0) < 2\"\n", "x.toml:8: test \"ratio(m, acks=0 / acks=1 where acks=0) < 2\" names acks in where and beside the /"},
		"two figures of one name":        {minimal + "[[figures]]\nname = \"a\"\nkind = \"bars\"\nx = \"acks\"\nwhere = { batch_records = 1 }\n[[figures]]\nname = \"a\"\nkind = \"bars\"\nx = \"batch_records\"\nwhere = { acks = \"0\" }\n", "x.toml:11: figure name \"a\" is there twice"},
		"figure of more cells than one":  {minimal + "[[figures]]\nname = \"a\"\nkind = \"bars\"\nx = \"acks\"\n", "x.toml:6: figure a: batch_records has several levels, and the figure says nothing of it"},
		"width that is no number":        {minimal + "run = { repeats = 8, max_repeats = 20, width = nan }\n", "x.toml:6: run.max_repeats needs run.width"},
		"fewer than no repeats":          {minimal + "run = { max_repeats = -1 }\n", "x.toml:6: run.max_repeats = -1"},
		"max repeats below repeats":      {minimal + "run = { repeats = 8, max_repeats = 4 }\n", "x.toml:6: run.max_repeats = 4"},
		"override of no factor":          {minimal + "[quick]\nvary = { linger_ms = [0] }\n", "x.toml:7: quick.vary names linger_ms, which is no factor"},
	} {
		_, err := Parse("x", []byte(c.text))
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s…", name, err, c.want)
		}
	}
}

func TestEveryUnknownKeyIsNamed(t *testing.T) {
	_, err := Parse("x", []byte(minimal+"one = 1\ntwo = 2\n"))
	if err == nil || err.Error() != "x.toml:6: unknown key one\nx.toml:7: unknown key two" {
		t.Errorf("got %v", err)
	}
}

func TestEveryEmbeddedExperimentParsesInEverySize(t *testing.T) {
	if len(Names()) < 13 {
		t.Fatalf("embedded: %v", Names())
	}
	for _, name := range Names() {
		s, err := Load(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(s.Verdicts) == 0 || len(s.Figures) == 0 {
			t.Errorf("%s: no verdicts or no figures", name)
		}
		for _, size := range []Size{SizeQuick, SizeDefault, SizeFull} {
			sized, err := s.WithSize(size)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			cells, _, err := sized.Cells()
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if size != SizeQuick && sized.Run.Repeats < 8 {
				t.Errorf("%s in size %s: %d repeats give no verdict", name, size, sized.Run.Repeats)
			}
			checkTestsHaveCells(t, sized, cells)
		}
	}
}

// A test whose groups hold no cell would be silently without a verdict.
func checkTestsHaveCells(t *testing.T, s *Spec, cells []Cell) {
	t.Helper()
	for _, v := range s.Verdicts {
		for _, group := range [][]Setting{v.Parsed().Numerator, v.Parsed().Denominator} {
			found := false
			for _, c := range cells {
				found = found || c.Has(group) && c.Has(v.Parsed().Where)
			}
			if !found {
				t.Errorf("%s: %q has no cell with %v", s.Name, v.Test, group)
			}
		}
	}
}

// The example of README.md is one that runs.
func TestTheExampleInTheReadmeParses(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "```toml\n")
	example, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("README.md has no example")
	}
	s, err := Parse("README", []byte(example))
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range []Size{SizeQuick, SizeDefault} {
		sized, err := s.WithSize(size)
		if err != nil {
			t.Fatal(err)
		}
		cells, _, err := sized.Cells()
		if err != nil {
			t.Fatal(err)
		}
		checkTestsHaveCells(t, sized, cells)
	}
}

func TestFactorialHoldsEveryValidCombinationOnceAndSaysWhatItPruned(t *testing.T) {
	s, err := Parse("x", []byte(`question = "q"
prediction = "p"
workload = { kind = "consume" }
except = [{ inflight = 2, "lab.cache" = "direct" }]
[vary]
"lab.cache" = ["page", "process", "direct"]
"lab.fetch.transfer" = ["sendfile", "copy"]
inflight = [1, 2]
`))
	if err != nil {
		t.Fatal(err)
	}
	cells, pruned, err := s.Cells()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range cells {
		got = append(got, c.Name())
	}
	want := []string{
		"lab.cache=page/lab.fetch.transfer=sendfile/inflight=1",
		"lab.cache=page/lab.fetch.transfer=sendfile/inflight=2",
		"lab.cache=page/lab.fetch.transfer=copy/inflight=1",
		"lab.cache=page/lab.fetch.transfer=copy/inflight=2",
		"lab.cache=process/lab.fetch.transfer=copy/inflight=1",
		"lab.cache=process/lab.fetch.transfer=copy/inflight=2",
		"lab.cache=direct/lab.fetch.transfer=copy/inflight=1",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("cells:\n%s", strings.Join(got, "\n"))
	}
	if len(cells)+len(pruned) != 12 {
		t.Errorf("%d cells and %d pruned, want 12 in all", len(cells), len(pruned))
	}
	for _, p := range pruned {
		if !strings.Contains(p.Why, "set lab.fetch.transfer=copy") && p.Why != "excepted by the experiment" {
			t.Errorf("%s pruned without a reason one can act on: %q", p.Name, p.Why)
		}
	}
}

func TestACellCarriesItsLevelsOverWhatTheSpecSets(t *testing.T) {
	s, err := Parse("x", []byte(`question = "q"
prediction = "p"
cluster = { settings = { "lab.cache" = "process", "log.segment.bytes" = 1048576 } }
workload = { kind = "growth", inflight = 4 }
[vary]
store = ["a", "b"]
inflight = [7]
[levels.store]
a = { "lab.cache" = "page", entropy = 2.5 }
b = { "lab.fetch.transfer" = "copy" }
`))
	if err != nil {
		t.Fatal(err)
	}
	cells, _, err := s.Cells()
	if err != nil {
		t.Fatal(err)
	}
	a, b := cells[0], cells[1]
	if a.Settings["lab.cache"] != "page" || a.Workload["entropy"] != "2.5" || a.Workload["inflight"] != "7" || a.Settings["log.segment.bytes"] != "1048576" {
		t.Errorf("a: %+v", a)
	}
	if b.Settings["lab.cache"] != "process" || b.Settings["lab.fetch.transfer"] != "copy" {
		t.Errorf("b: %+v", b)
	}
}

func TestParseTestReadsWhatStringWrites(t *testing.T) {
	for _, text := range []string{
		"ratio(p99-sec, acks=all / acks=1) < 2",
		"every(lost-acked-records) <= 0",
		"every(failover/bound where a=1, b.c=x) < 0.5",
		"ratio(bytes/s, a.b=x, d=2 / a.b=y, d=2 where chunk=1MiB, q=3) >= 1.25",
	} {
		test, err := ParseTest(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if test.String() != text {
			t.Errorf("%s came back as %s", text, test)
		}
	}
	for _, bad := range []string{"", "every(", "every() < 1", "every(m, a=1) < 1", "every(m where a) < 1", "every(m) < -1", "every(m) = 0", "ratio(m, a=1 / a=2) < 0", "ratio", "ratio(", "ratio()", "ratio(m) < 1", "ratio(m, a=1) < 1", "ratio(m, a=1 / b=2 / c=3) < 1", "ratio(m, a=1 / ) < 1",
		"ratio(m, a / b) < 1", "ratio(m, a=1 / a=2) = 1", "ratio(m, a=1 / a=2) < x", "ratio(m, a=1 / a=2) < -1", "ratio(m, a=1 / a=2) < NaN", "ratio(m, a=1, a=2 / a=3) < 1", "ratio(m, a=1 / a=2) < 1e99"} {
		if _, err := ParseTest(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func FuzzParseTest(f *testing.F) {
	f.Add("ratio(p99-sec, acks=all / acks=1) < 2")
	f.Add("ratio(bytes/s, a=x, d=2 / a=y where chunk=1MiB) >= 1.25")
	f.Fuzz(func(t *testing.T, text string) {
		test, err := ParseTest(text)
		if err != nil {
			return
		}
		again, err := ParseTest(test.String())
		if err != nil || again.String() != test.String() {
			t.Errorf("%q became %q and then %q, %v", text, test, again, err)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add(minimal)
	for _, name := range Names() {
		if s, err := Load(name); err == nil {
			f.Add(s.Text)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := Parse("x", []byte(text)); err == nil {
			_, _, _ = s.Cells()
		}
	})
}

// Two factors that set the same key cannot both have their way: the cell's name would say what it is not.
func TestAKeyHasOneFactorThatSetsIt(t *testing.T) {
	const head = "question = \"q\"\nprediction = \"p\"\nclaims = [\"C4\"]\nworkload = { kind = \"produce\" }\n"
	for name, c := range map[string]struct{ text, want string }{
		"a level and a factor": {head + "vary = { load = [\"a\", \"b\"], inflight = [1, 8] }\n[levels.load]\na = { inflight = 2 }\nb = { acks = \"1\" }\n", "x.toml:7: level a of load sets inflight, which is a factor too"},
		"two levels":           {head + "vary = { load = [\"a\"], disk = [\"b\"] }\n[levels.load]\na = { \"lab.cache\" = \"page\" }\n[levels.disk]\nb = { \"lab.cache\" = \"direct\" }\n", "x.toml:7: level a of load sets lab.cache, which disk sets too"},
	} {
		if _, err := Parse("x", []byte(c.text)); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s…", name, err, c.want)
		}
	}
}

// What a size or --set asks for is what runs, or an error.
func TestNothingThatASizeOrASettingAsksForIsPassedOver(t *testing.T) {
	s, err := Parse("x", []byte(minimal+"[quick]\nrun = { order = \"listed\" }\n"))
	if err != nil {
		t.Fatal(err)
	}
	if s, err = s.WithSize(SizeQuick); err != nil || s.Run.Order != "listed" {
		t.Errorf("order %q in size quick, %v", s.Run.Order, err)
	}
	if s, err = Parse("x", []byte(strings.Replace(minimal, "acks = [", "load = [\"a\", \"b\"], acks = [", 1)+"[levels.load]\na = { inflight = 2, \"lab.cache\" = \"page\" }\nb = { inflight = 4 }\n")); err != nil {
		t.Fatal(err)
	}
	for _, set := range [][2]string{{"inflight", "8"}, {"lab.cache", "direct"}} {
		if _, err := s.With(set[0], set[1]); err == nil || !strings.Contains(err.Error(), "load sets it") {
			t.Errorf("%s=%s: %v", set[0], set[1], err)
		}
	}
}
