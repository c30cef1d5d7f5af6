// LangChain's stores on Cosmos DB NoSQL: the history of chats, documents found by their vectors, and
// the cache of a model's answers that rests on them.
import { AzureCosmosDBNoSQLSemanticCache, AzureCosmosDBNoSQLVectorStore, AzureCosmsosDBNoSQLChatMessageHistory } from "@langchain/azure-cosmosdb";
import { AIMessage, HumanMessage } from "@langchain/core/messages";
import { ChatPromptTemplate, MessagesPlaceholder } from "@langchain/core/prompts";
import { Embeddings } from "@langchain/core/embeddings";
import { RunnableWithMessageHistory } from "@langchain/core/runnables";
import { FakeListChatModel, FakeLLM } from "@langchain/core/utils/testing";
import { assert, client, connectionString, databaseName, eventually, refused, stored, test } from "./harness.js";

const chats = (databaseName, sessionId, more = {}) =>
  new AzureCosmsosDBNoSQLChatMessageHistory({ sessionId, userId: "ann", databaseName, containerName: "chats", connectionString, ...more });
const said = (messages) => messages.map((m) => [m.getType(), m.content]);

test("langchain: messages of a chat", async () => {
  const database = databaseName();
  const chat = chats(database, "s 1 é");
  assert.deepEqual(await chat.getMessages(), []);
  await chat.addMessage(new HumanMessage({ content: "Hello, Zoë ☃", additional_kwargs: { mood: "good" } }));
  await chat.addMessage(new AIMessage("Hello."));
  const again = await chats(database, "s 1 é").getMessages();
  assert.deepEqual(said(again), [["human", "Hello, Zoë ☃"], ["ai", "Hello."]]);
  assert.deepEqual(again[0].additional_kwargs, { mood: "good" });
  assert.deepEqual(await chats(database, "s 1 é", { userId: "bob" }).getMessages(), []);
  const { resource } = await client.database(database).container("chats").read();
  assert.deepEqual(resource.partitionKey.paths, ["/userId"]);
  await chat.clear();
  assert.deepEqual(await chats(database, "s 1 é").getMessages(), []);
  await refused(404, chat.clear());
});

test("langchain: sessions and their contexts", async () => {
  const database = databaseName();
  for (const [session, userId] of [["1", "ann"], ["2", "ann"], ["3", "bob"]]) {
    const chat = chats(database, session, { userId });
    await chat.setContext({ title: `chat ${session}` }); // before there is an item, which is made by the first message
    await chat.addMessage(new HumanMessage(`from ${userId}`));
  }
  await chats(database, "2").setContext({ title: "renamed" });
  const sessions = await chats(database, "1").getAllSessions();
  assert.deepEqual(sessions.sort((a, b) => a.id - b.id), [{ id: "1", context: { title: "chat 1" } }, { id: "2", context: { title: "renamed" } }]);
  assert.deepEqual(said(await chats(database, "2").getMessages()), [["human", "from ann"]]);
  await chats(database, "1").clearAllSessions();
  assert.deepEqual((await stored(database, "chats")).map(({ id, userId, context }) => ({ id, userId, context })), [{ id: "3", userId: "bob", context: { title: "chat 3" } }]);
});

test("langchain: chats that expire", async () => {
  const database = databaseName();
  const chat = chats(database, "1", { ttl: 1 });
  await chat.addMessage(new HumanMessage("for a second"));
  const { resource } = await client.database(database).container("chats").read();
  assert.equal(resource.defaultTtl, 1);
  await eventually("the chat is gone", async () => (await chat.getMessages()).length === 0);
});

test("langchain: a chain with its history", async () => {
  const database = databaseName();
  const asked = [];
  const prompt = ChatPromptTemplate.fromMessages([new MessagesPlaceholder("history"), ["human", "{input}"]]);
  const chain = new RunnableWithMessageHistory({
    runnable: prompt
      .pipe((value) => (asked.push(said(value.toChatMessages())), value))
      .pipe(new FakeListChatModel({ responses: ["Hello, Ann.", "You are Ann."] })),
    inputMessagesKey: "input",
    historyMessagesKey: "history",
    getMessageHistory: (session) => chats(database, session),
  });
  const configured = { configurable: { sessionId: "1" } };
  await chain.invoke({ input: "I am Ann." }, configured);
  assert.equal((await chain.invoke({ input: "Who am I?" }, configured)).content, "You are Ann.");
  const all = [["human", "I am Ann."], ["ai", "Hello, Ann."], ["human", "Who am I?"], ["ai", "You are Ann."]];
  assert.deepEqual(asked, [all.slice(0, 1), all.slice(0, 3)]);
  assert.deepEqual(said(await chats(database, "1").getMessages()), all);
});

// Directions embeds a text as the direction of its number of degrees, so that it is plain which texts are near to each other.
class Directions extends Embeddings {
  constructor() {
    super({});
  }
  async embedQuery(text) {
    const angle = ((Number.parseFloat(text) || 0) * Math.PI) / 180;
    return [Math.cos(angle), Math.sin(angle)];
  }
  async embedDocuments(texts) {
    return Promise.all(texts.map((text) => this.embedQuery(text)));
  }
}

const vectors = (databaseName, more = {}) => new AzureCosmosDBNoSQLVectorStore(new Directions(), { databaseName, containerName: "vectors", connectionString, ...more });
const documents = [0, 90, 45, 180, 10, 270, 60].map((n) => ({ id: `d${n}`, pageContent: `${n} degrees`, metadata: { n, half: n < 180 ? "upper" : "lower" } }));
const near = (a, b) => assert.ok(Math.abs(a - b) < 1e-6, `${a}, want ${b}`);
const cosine = (degrees) => Math.cos((degrees * Math.PI) / 180);

// By default LangChain gives its documents no partition key, so all are in one range. With a key for each they are in all ranges.
for (const [name, more] of [["", {}], [", in all ranges", { createContainerOptions: { partitionKey: { paths: ["/id"] } } }]]) {
  test(`langchain: documents by their vectors${name}`, async () => {
    const database = databaseName();
    const store = vectors(database, more);
    assert.deepEqual(await store.addDocuments(documents), documents.map((d) => d.id));
    const { resource } = await client.database(database).container("vectors").read();
    assert.deepEqual(resource.vectorEmbeddingPolicy.vectorEmbeddings, [{ path: "/vector", dataType: "float32", dimensions: 2, distanceFunction: "cosine" }]);
    assert.deepEqual(resource.indexingPolicy.vectorIndexes.map(({ path, type }) => ({ path, type })), [{ path: "/vector", type: "quantizedFlat" }]);
    const nearest = await vectors(database, more).similaritySearchWithScore("49 degrees", 3);
    assert.deepEqual(nearest.map(([d]) => [d.id, d.pageContent, d.metadata]), ["d45", "d60", "d10"].map((id) => {
      const { pageContent, metadata } = documents.find((d) => d.id === id);
      return [id, pageContent, metadata];
    }));
    nearest.forEach(([, score], i) => near(score, cosine([4, 11, 39][i])));
    const filter = { filterClause: { query: "WHERE c.metadata.half = @half", parameters: [{ name: "@half", value: "lower" }] } };
    assert.deepEqual((await store.similaritySearch("49 degrees", 4, filter)).map((d) => d.id), ["d180", "d270"]);
    const [first, second] = await store.maxMarginalRelevanceSearch("49 degrees", { k: 2, fetchK: 7, lambda: 0.1 });
    assert.deepEqual([first.id, second.id], ["d45", "d180"]);
    assert.equal((await store.similaritySearch("0", 100)).length, documents.length);
  });
}

for (const [metric, order, scores] of [
  ["euclidean", ["d45", "d60", "d10"], [4, 11, 39].map((n) => 2 * Math.sin((n * Math.PI) / 360))],
  ["dotproduct", ["d45", "d60", "d10"], [4, 11, 39].map(cosine)],
]) {
  test(`langchain: documents by ${metric}`, async () => {
    const store = vectors(databaseName(), {
      vectorEmbeddingPolicy: { vectorEmbeddings: [{ path: "/vector", dataType: "float32", distanceFunction: metric, dimensions: 2 }] },
    });
    await store.addDocuments(documents);
    const nearest = await store.similaritySearchWithScore("49 degrees", 3);
    assert.deepEqual(nearest.map(([d]) => d.id), order);
    nearest.forEach(([, score], i) => near(score, scores[i]));
  });
}

test("langchain: documents are deleted", async () => {
  const database = databaseName();
  const store = vectors(database);
  await store.addDocuments(documents);
  await store.delete({ ids: ["d45", "d60"] });
  assert.deepEqual((await store.similaritySearch("49 degrees", 1)).map((d) => d.id), ["d10"]);
  await store.delete({ filter: { query: "SELECT c.id FROM c WHERE c.metadata.n < @n", parameters: [{ name: "@n", value: 100 }] } });
  assert.deepEqual((await stored(database, "vectors")).map((d) => d.id), ["d180", "d270"]);
  await store.delete();
  assert.deepEqual(await stored(database, "vectors"), []);
});

test("langchain: answers of a model from the cache", async () => {
  const cache = new AzureCosmosDBNoSQLSemanticCache(new Directions(), { databaseName: databaseName(), connectionString }, 0.99);
  assert.equal(await cache.lookup("10 degrees", "model"), null);
  await cache.update("10 degrees", "model", [{ text: "north, nearly" }]);
  await cache.update("90 degrees", "model", [{ text: "east" }]);
  assert.deepEqual((await cache.lookup("12 degrees", "model")).map((g) => g.text), ["north, nearly"]);
  assert.equal(await cache.lookup("45 degrees", "model"), null);
  let calls = 0;
  const model = new FakeLLM({ cache });
  model._call = async (prompt) => `answer ${++calls} to ${prompt}`;
  assert.equal(await model.invoke("200 degrees"), "answer 1 to 200 degrees");
  assert.equal(await model.invoke("201 degrees"), "answer 1 to 200 degrees");
  assert.equal(await model.invoke("300 degrees"), "answer 2 to 300 degrees");
  await cache.clear("model");
  assert.equal(await cache.lookup("10 degrees", "model"), null);
});
