package sim

import (
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/broker"
	"github.com/tidemark-log/tidemark/broker/env"
	"github.com/tidemark-log/tidemark/storage/vfs"
)

// planted is a known fault put into the world, to prove that a checker sees it. The zero
// value plants nothing.
type planted struct {
	w      *World
	doc    string
	change func(*config)                            // before anything happens
	wrapFS func(*World, vfs.FS) vfs.FS              // between the broker and its disk
	onOp   func(*World, *incarnation, vfs.Op) error // before an operation
	wrap   func(*World, *incarnation) env.Env       // between the broker and its world
	reply  func(*broker.Answer)                     // when the broker answers
	ask    func(kmsg.Request)                       // when a request arrives
	lose   func(*World, kmsg.Request) bool          // answers that never leave
}

func (p *planted) config(c *config) {
	if p.change != nil {
		p.change(c)
	}
}

func (p *planted) disk(fs vfs.FS) vfs.FS {
	if p.wrapFS != nil {
		return p.wrapFS(p.w, fs)
	}
	return fs
}

func (p *planted) hook(i *incarnation, op vfs.Op) error {
	if p.onOp != nil {
		return p.onOp(p.w, i, op)
	}
	return nil
}

func (p *planted) env(i *incarnation) env.Env {
	if p.wrap != nil {
		return p.wrap(p.w, i)
	}
	return i
}

func (p *planted) answer(a *broker.Answer) {
	if p.reply != nil {
		p.reply(a)
	}
}

func (p *planted) request(r kmsg.Request) {
	if p.ask != nil {
		p.ask(r)
	}
}

func (p *planted) loses(r kmsg.Request) bool { return p.lose != nil && p.lose(p.w, r) }

// Plants lists the planted faults, by name.
func Plants() []string { return slices.Sorted(maps.Keys(plants)) }

// PlantDoc says what a planted fault does; "" when there is none of that name.
func PlantDoc(name string) string { return plants[name].doc }
