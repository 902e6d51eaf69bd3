package broker

import "github.com/twmb/franz-go/pkg/kmsg"

// ApiVersions, versions 0-4. An unknown version is answered as version 0 with
// UNSUPPORTED_VERSION and the range of ApiVersions itself (KIP-511), so that the client can ask again.
//
// Left out: features (there are none), version 5 (cluster and node id checks).

func (b *Broker) apiVersions(req *kmsg.ApiVersionsRequest) *kmsg.ApiVersionsResponse {
	resp := req.ResponseKind().(*kmsg.ApiVersionsResponse)
	resp.FinalizedFeaturesEpoch = -1
	if !Supports(req.Key(), req.Version) {
		resp.Version = 0
		resp.ErrorCode = codeUnsupportedVersion
		for _, a := range apis {
			if a.Key == req.Key() {
				resp.ApiKeys = append(resp.ApiKeys, apiKey(a))
			}
		}
		return resp
	}
	resp.ApiKeys = make([]kmsg.ApiVersionsResponseApiKey, 0, len(apis))
	for _, a := range apis {
		resp.ApiKeys = append(resp.ApiKeys, apiKey(a))
	}
	return resp
}

func apiKey(a API) kmsg.ApiVersionsResponseApiKey {
	k := kmsg.NewApiVersionsResponseApiKey()
	k.ApiKey, k.MinVersion, k.MaxVersion = a.Key, a.Min, a.Max
	return k
}
