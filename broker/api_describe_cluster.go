package broker

import "github.com/twmb/franz-go/pkg/kmsg"

// DescribeCluster, versions 0-2. Left out: authorized operations, racks, controllers as an endpoint type of their own.

const endpointTypeBrokers = 1

func (b *Broker) describeCluster(req *kmsg.DescribeClusterRequest, local string) *kmsg.DescribeClusterResponse {
	resp := req.ResponseKind().(*kmsg.DescribeClusterResponse)
	resp.Default()
	resp.EndpointType = endpointTypeBrokers
	m := b.meta.Load()
	resp.ClusterID = m.clusterID
	nodes, controller := b.nodesFor(m, local)
	resp.ControllerID = controller
	resp.ClusterAuthorizedOperations = authorizedOperationsNone
	if req.Version >= 1 && req.EndpointType != endpointTypeBrokers {
		const mismatchedEndpointType = 114
		resp.ErrorCode, resp.ErrorMessage = mismatchedEndpointType, ptr("this cluster has brokers only")
		return resp
	}
	for i := range nodes {
		broker := kmsg.NewDescribeClusterResponseBroker()
		broker.NodeID, broker.Host, broker.Port = nodes[i].id, nodes[i].host, nodes[i].port
		if nodes[i].rack != "" {
			broker.Rack = &nodes[i].rack
		}
		resp.Brokers = append(resp.Brokers, broker)
	}
	return resp
}
