package broker

import (
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// AlterConfigs, versions 0-2, and IncrementalAlterConfigs, versions 0-1, of topics
// and of this broker. Each resource changes as a whole or not at all.
//
// Left out: loggers; defaults for all brokers.

// namedResource is a resource as a request names it.
type namedResource struct {
	kind kmsg.ConfigResourceType
	name string
}

// whyResourceTwice is said of each of them: which change was meant is not known.
const whyResourceTwice = "the resource is named twice in one request"

func (b *Broker) handleAlterConfigs(req *kmsg.AlterConfigsRequest, reply Reply) {
	resp := req.ResponseKind().(*kmsg.AlterConfigsResponse)
	resp.Resources = make([]kmsg.AlterConfigsResponseResource, len(req.Resources))
	end := newCountdown(len(req.Resources), func() { reply(Answer{Body: resp}) })
	named := map[namedResource]int{}
	for i := range req.Resources {
		named[namedResource{req.Resources[i].ResourceType, req.Resources[i].ResourceName}]++
	}
	for i := range req.Resources {
		asked, answer := &req.Resources[i], &resp.Resources[i]
		answer.Default()
		answer.ResourceType, answer.ResourceName = asked.ResourceType, strings.Clone(asked.ResourceName)
		next, code, why := replacement(asked.Configs)
		if named[namedResource{asked.ResourceType, asked.ResourceName}] > 1 {
			code, why = codeInvalidRequest, whyResourceTwice
		}
		change := func(configResource, map[string]string) (map[string]string, int16, string) { return next, code, why }
		b.alterConfig(asked.ResourceType, answer.ResourceName, req.ValidateOnly, change, func(code int16, why string) {
			if code != codeNone {
				answer.ErrorCode, answer.ErrorMessage = code, &why
			}
			end.done()
		})
	}
	end.done()
}

// replacement is all the settings that AlterConfigs leaves; one without a value goes back to its default.
func replacement(configs []kmsg.AlterConfigsRequestResourceConfig) (next map[string]string, code int16, why string) {
	next = map[string]string{}
	for _, c := range configs {
		if _, twice := next[c.Name]; twice {
			return nil, codeInvalidRequest, "setting " + strings.Clone(c.Name) + " is named twice"
		}
		if c.Value != nil {
			next[strings.Clone(c.Name)] = strings.Clone(*c.Value)
		}
	}
	return next, codeNone, ""
}

func (b *Broker) handleIncrementalAlterConfigs(req *kmsg.IncrementalAlterConfigsRequest, reply Reply) {
	resp := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	resp.Resources = make([]kmsg.IncrementalAlterConfigsResponseResource, len(req.Resources))
	end := newCountdown(len(req.Resources), func() { reply(Answer{Body: resp}) })
	named := map[namedResource]int{}
	for i := range req.Resources {
		named[namedResource{req.Resources[i].ResourceType, req.Resources[i].ResourceName}]++
	}
	for i := range req.Resources {
		asked, answer := &req.Resources[i], &resp.Resources[i]
		answer.Default()
		answer.ResourceType, answer.ResourceName = asked.ResourceType, strings.Clone(asked.ResourceName)
		edits, twice := cloneEdits(asked.Configs), named[namedResource{asked.ResourceType, asked.ResourceName}] > 1
		change := func(r configResource, own map[string]string) (map[string]string, int16, string) {
			if twice {
				return nil, codeInvalidRequest, whyResourceTwice
			}
			return r.edit(own, edits)
		}
		b.alterConfig(asked.ResourceType, answer.ResourceName, req.ValidateOnly, change, func(code int16, why string) {
			if code != codeNone {
				answer.ErrorCode, answer.ErrorMessage = code, &why
			}
			end.done()
		})
	}
	end.done()
}

// cloneEdits copies edits, whose texts alias the receive buffer.
func cloneEdits(edits []kmsg.IncrementalAlterConfigsRequestResourceConfig) []kmsg.IncrementalAlterConfigsRequestResourceConfig {
	own := slices.Clone(edits)
	for i := range own {
		own[i].Name = strings.Clone(own[i].Name)
		if own[i].Value != nil {
			own[i].Value = ptr(strings.Clone(*own[i].Value))
		}
	}
	return own
}

// edit applies incremental changes to the resource's own settings.
func (r configResource) edit(own map[string]string, edits []kmsg.IncrementalAlterConfigsRequestResourceConfig) (next map[string]string, code int16, why string) {
	next = maps.Clone(own)
	if next == nil {
		next = map[string]string{}
	}
	seen := map[string]bool{}
	for _, e := range edits {
		if seen[e.Name] {
			return nil, codeInvalidRequest, "setting " + e.Name + " is named twice"
		}
		seen[e.Name] = true
		switch {
		case e.Op == kmsg.IncrementalAlterConfigOpDelete:
			delete(next, e.Name)
		case e.Op == kmsg.IncrementalAlterConfigOpSet && e.Value != nil:
			next[e.Name] = *e.Value
		case e.Op == kmsg.IncrementalAlterConfigOpSet:
			return nil, codeInvalidRequest, "setting " + e.Name + " is set to no value"
		default:
			// No setting that can be altered is a list, so nothing can be appended to or subtracted from.
			return nil, codeInvalidConfig, "setting " + e.Name + " is no list"
		}
	}
	return next, codeNone, ""
}
