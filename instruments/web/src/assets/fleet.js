// The view of the program's nodes, of the groups that they belong to, and of the program's members of pools.

import { age, count, element, shown } from "./text.js";
import { Facts, Table, arrange, write } from "./part.js";
import { View } from "./log.js";

/** The ends of calls without a result, by the names of their counts. */
const FATES = { no_service: "no service", not_accepted: "not accepted", too_large: "too large", closed: "node closed",
  timed_out: "timed out", server_lost: "server lost", dropped: "dropped", no_result: "result gone" };

/** Formats the calls without a result. */
const lost = calls => Object.entries(FATES).filter(([name]) => calls[name] > 0)
  .map(([name, words]) => `${count(calls[name])} ${words}`).join(", ") || "none";

/** Formats a part of the figures of a member. A member that has not answered has no figures. */
const figure = (member, format) => member.figures === null ? "-" : format(member.figures);

const states = member => [figure(member, it => it.state), member.leader ? "leader" : "", member.votes ? "votes" : "",
  member.leaving && member.figures?.state !== "leaving" ? "leaving" : ""].filter(state => state !== "" && state !== "-");

const memberTable = () => new Table(
  ["member", "machine", "state", "term", "lease", "calls done", "calls lost", "served", "sessions", "shards", "moved in, out",
    "requests"],
  member => [shown(member.endpoint), member.machine,
    `${states(member).join(", ")}${member.figures === null ? " (does not answer)" : ""}`,
    figure(member, it => `${it.term}`), figure(member, it => it.lease_ms > 0 ? "yes" : "no"), figure(member, it => count(it.calls.done)),
    figure(member, it => lost(it.calls)), figure(member, it => `${count(it.served)}, ${count(it.running)} running`),
    figure(member, it => count(it.sessions)), figure(member, it => count(it.shards)),
    figure(member, it => `${count(it.imported)}, ${count(it.exported)}`),
    figure(member, it => `${count(it.granted)} granted, ${count(it.refused)} refused`)]);

const kind = name => name.roster ? "roster" : name.shards > 0 ? `${name.shards} shards` : name.stateless ? "stateless" : "service";

const nameTable = () => new Table(["name", "kind", "members, with their shards", "moves"],
  name => [shown(name.name), kind(name),
    shown(name.shards === 0 ? name.nodes.join(", ")
      : name.owners.map(owner => `${owner.member ?? "no owner"}: ${owner.shards}`).join(", ")),
    shown(name.moves.map(move => `${move.shard} to ${move.to}`).join(", ") || "none")]);

const poolStates = pool => [pool.state, pool.master ? "master" : "", pool.has_heir ? "has an heir" : ""].filter(state => state !== "")
  .join(", ");

/** The members of pools, each with its number in the program. */
const poolTable = () => new Table(
  ["pool", "member", "node", "state", "members", "strategy", "elements here", "operations", "untaken", "messages",
    "demand transfers", "background transfers"],
  pool => [shown(pool.name), `${pool.number}`, pool.node ?? "-", poolStates(pool), count(pool.members),
    pool.strategy, count(pool.elements), `${count(pool.operations)} begun, ${count(pool.open_operations)} open`, count(pool.untaken),
    count(pool.messages), `${count(pool.demand_transfers)} with ${count(pool.demanded)} elements`, count(pool.background_transfers)]);

const endTable = () => new Table(["when", "member", "reason", "seen by"],
  end => [age(end.at_ms), shown(end.endpoint), shown(end.reason), shown(end.by)]);

/** Joins the ends of members that several members have seen. The latest come first. */
function ends(members) {
  const found = new Map();
  members.filter(member => member.figures !== null).forEach(member => member.figures.ends.forEach(end => {
    const known = found.get(end.node);
    if (known === undefined) found.set(end.node, { ...end, by: [member.endpoint] });
    else known.by.push(member.endpoint);
  }));
  // The time of an end is rounded, so that its row stays.
  return [...found.values()].sort((one, other) => other.at_ms - one.at_ms)
    .map(end => ({ ...end, at_ms: Math.round(end.at_ms / 1000) * 1000, by: end.by.join(", ") }));
}

/** The group of one node of the program. Its elements stay while the node is there. */
class Group {
  constructor(site) {
    this.site = site;
    this.title = element("h2");
    this.failure = element("p", { className: "bad" });
    this.facts = new Facts();
    this.members = memberTable();
    this.leavers = new Map();
    this.acts = element("div", { className: "acts" });
    this.names = nameTable();
    this.ends = endTable();
    const section = (title, table) => [element("h3", {}, title), table.node];
    this.group = element("div", {}, ...section("Members", this.members), this.acts, ...section("Names", this.names),
      ...section("Ends of members", this.ends));
    this.node = element("section", {}, this.title, this.facts.node, this.failure, this.group);
  }

  /** Makes the button by which a member of the program leaves. Its row changes at each poll, and the button stays. */
  leaver({ endpoint, number }) {
    const words = shown(`Let ${endpoint} leave`);
    const button = element("button", { type: "button", className: "act leave", disabled: this.site.hasEnded }, words);
    button.onclick = () => {
      const question = `Let ${endpoint} leave its group? Its shards move to other members first. The program keeps its node, `
        + "which serves no more. If no other member can take a shard, the shard's state ends.";
      this.site.act("Leave", endpoint, question, `fleet/${number}/leave`, {});
    };
    return button;
  }

  /** Gives each member of the program that can leave a button. */
  updateLeavers(members) {
    const can = member => member.number !== null && !this.site.program.read_only && member.figures?.state === "member";
    const before = this.leavers;
    this.leavers = new Map(members.filter(can).map(member => [member.number, before.get(member.number) ?? this.leaver(member)]));
    arrange(this.acts, [...this.leavers.values()]);
  }

  update({ node, group, why }) {
    const { calls } = node;
    write(this.title, shown(`Node ${node.number}: ${node.endpoint}`));
    this.facts.update([
      ["number in its group", node.node],
      ["state", node.joined > 1 ? `${node.state}; began again ${node.joined - 1} times` : node.state],
      ["leader", group === null ? "unknown" : group.leader ?? "none: most voters do not answer"],
      ["calls", `${count(calls.done)} done, ${count(node.open_calls)} open; lost: ${lost(calls)}`],
      ["claimed", group?.reserved.map(name => `${name}/*`).join(", ") || "nothing"],
    ]);
    write(this.failure, shown(why ?? ""));
    this.group.hidden = group === null;
    if (group === null) return;
    this.members.update(group.members);
    this.updateLeavers(group.members);
    this.names.update(group.names);
    this.ends.update(ends(group.members));
  }
}

/** All nodes and members of pools of the program. Nodes of one group show it once. */
export class FleetView extends View {
  constructor(site) {
    super(site, "fleet");
    this.groups = new Map();
    this.none = element("p", { className: "weak" }, "The program has no nodes of groups.");
    this.list = element("div");
    this.table = poolTable();
    this.pools = element("section", { hidden: true }, element("h2", {}, "Members of pools in the program"), this.table.node);
    this.section.append(this.failure, this.none, this.pools, this.list);
  }

  path() {
    return "fleet";
  }

  draw({ nodes, pools }) {
    const before = this.groups;
    this.groups = new Map(nodes.map(one => [one.node.number, before.get(one.node.number) ?? new Group(this.site)]));
    nodes.forEach(one => this.groups.get(one.node.number).update(one));
    arrange(this.list, [...this.groups.values()].map(group => group.node));
    this.none.hidden = nodes.length > 0;
    this.pools.hidden = pools.length === 0;
    this.table.update(pools);
  }
}
