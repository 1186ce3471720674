//! Views of the nodes of the program and of their groups. Without the feature `fleet` the list is empty.

pub(crate) use nodes::{group, leave, list};

#[cfg(feature = "fleet")]
mod nodes {
    use std::collections::BTreeMap;
    use std::time::{Duration, SystemTime};

    use squall_fleet::{
        EndInfo, GroupInfo, NodeFigures, NodeId, NodeInfo, NodeState, RequestError, ServiceInfo, ShardInfo,
        nodes,
    };

    use crate::answers::since_1970;
    use crate::protocol::{
        EndView, FatesView, FiguresView, GroupView, MemberView, MoveView, NameView, NodeView, OwnerView,
    };

    /// Longest wait for the directory, and for the figures of other members. All other requests wait for as
    /// long.
    const DIRECTORY: Duration = Duration::from_millis(500);
    const FIGURES: Duration = Duration::from_millis(300);
    /// Longest wait for a node to leave. It goes on leaving afterwards.
    const LEAVING: Duration = Duration::from_secs(1);

    /// Lists the nodes of the program.
    pub(crate) fn list() -> Vec<NodeView> {
        nodes().iter().map(node_view).collect()
    }

    fn find(number: u64) -> Result<NodeInfo, String> {
        let found = nodes().into_iter().find(|info| info.number == number);
        found.ok_or_else(|| {
            format!("the program has no node {number}; it has ended or never existed (\"nodes\" lists them)")
        })
    }

    /// Describes the group of a node. Asks the other members for their figures.
    ///
    /// # Errors
    /// The reason, as a sentence.
    pub(crate) fn group(number: u64) -> Result<GroupView, String> {
        let info = find(number)?;
        if info.figures.state == NodeState::Left {
            return Err(format!("node {number} ({}) has left its group", info.endpoint));
        }
        let group = info.show(DIRECTORY).map_err(|error| match error {
            RequestError::TimedOut => format!(
                "no member answered node {number} ({}) within {} ms; look whether one lives",
                info.endpoint,
                DIRECTORY.as_millis()
            ),
            other => format!("node {number} ({}): {other}", info.endpoint),
        })?;
        let here: BTreeMap<NodeId, NodeInfo> = nodes().into_iter().map(|info| (info.node, info)).collect();
        let members = group.members.iter().map(|member| member.node);
        let others: Vec<NodeId> = members.filter(|node| !here.contains_key(node)).collect();
        let mut figures = info.figures_of(&others, FIGURES);
        figures.extend(here.iter().map(|(node, info)| (*node, info.figures.clone())));
        let numbers = here.iter().map(|(node, info)| (*node, info.number)).collect();
        Ok(group_view(&group, &figures, &numbers))
    }

    /// Lets a node leave its group. Returns `true` once it has left, and `false` if it goes on leaving.
    ///
    /// # Errors
    /// The reason, as a sentence.
    pub(crate) fn leave(number: u64) -> Result<bool, String> {
        let info = find(number)?;
        match info.leave(LEAVING) {
            Ok(()) => Ok(true),
            Err(RequestError::TimedOut) => Ok(false),
            Err(_) => Err(format!("node {number} ({}) is no member, so it cannot leave", info.endpoint)),
        }
    }

    fn node_view(info: &NodeInfo) -> NodeView {
        NodeView {
            number: info.number,
            node: info.node.to_string(),
            endpoint: info.endpoint.clone(),
            machine: machine(info.host),
            figures: figures_view(&info.figures),
        }
    }

    fn machine(host: u64) -> String {
        format!("{host:016x}")
    }

    fn millis(span: Duration) -> u64 {
        u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
    }

    fn figures_view(figures: &NodeFigures) -> FiguresView {
        let now = SystemTime::now();
        let end = |end: &EndInfo| EndView {
            node: end.node.to_string(),
            endpoint: end.endpoint.clone(),
            reason: end.reason.to_string(),
            at_ms: since_1970(now.checked_sub(end.age).unwrap_or(SystemTime::UNIX_EPOCH)),
        };
        let calls = &figures.calls;
        FiguresView {
            state: figures.state.to_string(),
            leader: figures.leader.map(|node| node.to_string()),
            term: figures.term,
            lease_ms: millis(figures.lease_left),
            joined: figures.joined,
            open_calls: figures.open_calls,
            calls: FatesView {
                done: calls.done,
                no_service: calls.no_service,
                not_accepted: calls.not_accepted,
                too_large: calls.too_large,
                closed: calls.closed,
                timed_out: calls.timed_out,
                server_lost: calls.server_lost,
                dropped: calls.dropped,
                no_result: calls.no_result,
            },
            served: figures.served,
            running: figures.running,
            sessions: figures.sessions,
            granted: figures.granted,
            refused: figures.refused,
            shards: figures.shards,
            created: figures.created,
            imported: figures.imported,
            exported: figures.exported,
            ends: figures.ends.iter().map(end).collect(),
        }
    }

    fn group_view(
        group: &GroupInfo,
        figures: &BTreeMap<NodeId, NodeFigures>,
        numbers: &BTreeMap<NodeId, u64>,
    ) -> GroupView {
        let endpoints: BTreeMap<NodeId, &str> =
            group.members.iter().map(|member| (member.node, &*member.endpoint)).collect();
        // A member that has just gone has a number alone.
        let at = |node: NodeId| endpoints.get(&node).map_or_else(|| node.to_string(), |at| (*at).to_owned());
        let member = |member: &squall_fleet::MemberInfo| MemberView {
            node: member.node.to_string(),
            endpoint: member.endpoint.clone(),
            machine: machine(member.host),
            leader: group.leader == Some(member.node),
            votes: member.votes,
            leaving: member.leaving,
            number: numbers.get(&member.node).copied(),
            figures: figures.get(&member.node).map(figures_view),
        };
        GroupView {
            leader: group.leader.map(at),
            members: group.members.iter().map(member).collect(),
            names: group.services.iter().map(|service| name_view(service, &at)).collect(),
            reserved: group.reserved.iter().map(ToString::to_string).collect(),
        }
    }

    fn name_view(service: &ServiceInfo, at: &dyn Fn(NodeId) -> String) -> NameView {
        let mut owned: BTreeMap<Option<NodeId>, usize> = BTreeMap::new();
        for shard in &service.shards {
            *owned.entry(shard.owner).or_default() += 1;
        }
        let moves = |(shard, info): (usize, &ShardInfo)| {
            Some(MoveView { shard, from: info.owner.map(at), to: at(info.target?) })
        };
        NameView {
            name: service.name.to_string(),
            stateless: service.stateless,
            roster: service.roster_epoch.is_some(),
            nodes: service.nodes.iter().map(|node| at(*node)).collect(),
            shards: service.shards.len(),
            epochs: (service.shards.iter())
                .fold(service.roster_epoch.unwrap_or(0), |sum, shard| sum.saturating_add(shard.epoch)),
            owners: (owned.into_iter())
                .map(|(owner, shards)| OwnerView { member: owner.map(at), shards })
                .collect(),
            moves: service.shards.iter().enumerate().filter_map(moves).collect(),
        }
    }
}

#[cfg(not(feature = "fleet"))]
mod nodes {
    use crate::protocol::{GroupView, NodeView};

    const NONE: &str = "the program is built without fleets (feature \"fleet\")";

    pub(crate) fn list() -> Vec<NodeView> {
        Vec::new()
    }

    pub(crate) fn group(_: u64) -> Result<GroupView, String> {
        Err(NONE.to_owned())
    }

    pub(crate) fn leave(_: u64) -> Result<bool, String> {
        Err(NONE.to_owned())
    }
}
