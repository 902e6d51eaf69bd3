package broker

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeConfigs, versions 0-4, of topics and of this broker, from the table in settings.go.
//
// Left out: loggers, client metrics, groups; defaults for all brokers (resource name "").

func (b *Broker) describeConfigs(req *kmsg.DescribeConfigsRequest) *kmsg.DescribeConfigsResponse {
	resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
	resp.Resources = make([]kmsg.DescribeConfigsResponseResource, len(req.Resources))
	for i := range req.Resources {
		asked, answer := &req.Resources[i], &resp.Resources[i]
		answer.Default()
		answer.ResourceType, answer.ResourceName = asked.ResourceType, asked.ResourceName
		r, code, why := b.configResource(asked.ResourceType, asked.ResourceName)
		if code != codeNone {
			answer.ErrorCode, answer.ErrorMessage = code, &why
			continue
		}
		names := asked.ConfigNames
		if names == nil {
			names = r.names()
		}
		cfg := b.cfg.Load()
		if r.t != nil {
			cfg = b.topicConfig(r.t.overrides)
		}
		for _, name := range names {
			if s := r.find(name); s != nil {
				answer.Configs = append(answer.Configs, r.describe(s, cfg, req))
			}
		}
	}
	return resp
}

var configTypes = map[string]kmsg.ConfigType{
	"boolean": kmsg.ConfigTypeBoolean,
	"string":  kmsg.ConfigTypeString,
	"int":     kmsg.ConfigTypeInt,
	"long":    kmsg.ConfigTypeLong,
	"list":    kmsg.ConfigTypeList,
}

func (r configResource) describe(s *Setting, cfg *Config, req *kmsg.DescribeConfigsRequest) kmsg.DescribeConfigsResponseResourceConfig {
	c := kmsg.NewDescribeConfigsResponseResourceConfig()
	c.Value = ptr(s.Value(cfg))
	c.ConfigType = configTypes[s.Type()]
	var overrides map[string]string
	if r.t != nil {
		overrides = r.t.overrides
		c.Name, c.Source = s.Topic, s.topicSource(overrides, cfg)
		c.IsDefault = c.Source != kmsg.ConfigSourceDynamicTopicConfig
	} else {
		c.Name, c.Source, c.ReadOnly = s.Name, s.brokerSource(cfg), !s.Dynamic
		c.IsDefault = c.Source == kmsg.ConfigSourceDefaultConfig
	}
	if req.IncludeSynonyms {
		c.ConfigSynonyms = s.synonyms(overrides, cfg)
	}
	if req.IncludeDocumentation {
		c.Documentation = &s.Doc
	}
	return c
}
